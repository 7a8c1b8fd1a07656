"""``vitrail status``: what there is at a scale, where it is, and which claims it bears out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replication.cli.options import Results, Runs, Scale, open_catalog
from vitrail.commands import count, say, table
from vitrail.commands.app import Json, command

if TYPE_CHECKING:
    from replication.plan.catalog import Catalog
    from replication.records.specs import Artifact


@command()
def status(
    as_json: Json = False, scale: Scale = None, runs: Runs = None, results: Results = None
) -> None:
    """Tell what is done at a scale and which claims held.

    Prints a line for each table and figure that is done (every cell was measured) or partly done
    (some measurements are taken, or some cells were not measured), then claims, runs, files, and
    the report: yours, and the published one.

    \b
    vitrail status
    vitrail status --scale small
    """
    from replication.claims.comparison import VERDICTS
    from replication.report.ledger import claims_of, older_runs, published_folder
    from replication.report.progress import count_states, state_of
    from replication.report.results import cells_of, count_evidence, told_evidence

    catalog = open_catalog(scale, runs, results)
    name, page = catalog.scale.name, catalog.reports[1]
    published = published_folder(catalog) / catalog.reports[0].name
    states = count_states(map(state_of, catalog.runs.values()))
    found: dict[str, dict[str, Any]] = {}
    for artifact in catalog.artifacts:
        verdicts = Counter(cells_of(artifact, catalog.results)["verdict"])
        state = artifact_state(artifact, verdicts, catalog)
        found[artifact.target] = {"state": state, "verdicts": verdicts}
    if as_json:
        record = {
            "scale": name,
            "results": str(catalog.results),
            "reports": [str(report) for report in (page, published) if report.is_file()],
            "runs": states,
            "artifacts": found,
            "claims": count_evidence(claims_of(catalog, catalog.results)),
            "faults": _faults(catalog),
            "trained_by_older_code": older_runs(catalog.runs.values()),
        }
        say(json.dumps(record, indent=2))
        return
    rows = [
        [target, entry["state"], *(entry["verdicts"][verdict] or None for verdict in VERDICTS)]
        for target, entry in found.items()
        if entry["state"] != "missing"
    ]
    if rows:
        table(["artifact", "state", *VERDICTS.values()], rows, right=VERDICTS.values())
    if missing := len(found) - len(rows):
        say(f"Not begun: {missing} of {len(found)} tables and figures.")
    claims = claims_of(catalog, catalog.results)
    judged = claims[claims["status"] != "not run"].to_dict("records")
    if judged:
        say("Claims whose numbers were measured:")
    for claim in judged:
        say(f"  {claim['status']:<10} {claim['id']}: {claim['statement']}")
        if claim["status"] != "held":
            say(f"  {'':<10} {claim['detail']}")
    say(f"Runs at scale {name}: {_listed(states)} (in {catalog.runs_root}/)")
    make = f"{catalog.snakemake('all')}{catalog.profile_hint}"
    if any(entry["state"] != "missing" for entry in found.values()):
        say(f"Tables and figures: {catalog.results}/<paper>/")
    else:
        say(
            f"No results yet. What they take: vitrail plan all --scale {name}. To make them: {make}"
        )
    say(f"Report, all on one page: {page}" + ("" if page.is_file() else f" (not yet: {make})"))
    if published.is_file():
        say(f"Published report: {published}")
    _say_older(catalog)
    if judged:
        counts = told_evidence(count_evidence(claims))
        say(f"Claims (those about the same numbers count once): {counts}")


def _faults(catalog: Catalog) -> list[str]:
    """What is not as its node says, each record once, with its remedy."""
    from replication.report.ledger import ledger_of

    ledger, told = ledger_of(catalog), dict[Path, str]()
    for artifact in catalog.artifacts:
        node = catalog.rendering_node(artifact)
        for path in (*node.inputs, node.output):
            if fault := ledger.fault(path):
                told.setdefault(fault.output, fault.remedy(artifact.target, catalog.snakemake))
    return [*told.values()]


def _say_older(catalog: Catalog) -> None:
    """Print the records that must be made again, and the runs that older code trained."""
    from replication.report.ledger import older_runs

    if faults := _faults(catalog):
        say(f"{count(len(faults), 'record')} to make again:")
    say(*(f"  {sentence}" for sentence in faults))
    if older := older_runs(catalog.runs.values()):
        say(
            f"{count(len(older), 'run')} trained by older code (measured as they are; "
            f"{catalog.snakemake('all', retrain='changed')} trains them anew):"
        )
    say(*(f"  {name}" for name in older))


def artifact_state(artifact: Artifact, verdicts: Mapping[str, int], catalog: Catalog) -> str:
    """Done: rendered, every cell measured; missing: nothing yet; partly: in between."""
    from replication.report.progress import is_rendered

    if is_rendered(artifact, catalog):
        return "partly" if "not_run" in verdicts else "done"
    begun = any(path.is_file() for path in artifact.records)
    return "partly" if begun else "missing"


def _listed(counts: Mapping[Any, int]) -> str:
    return ", ".join(f"{number} {word}" for word, number in counts.items() if number) or "none"
