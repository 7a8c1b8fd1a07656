"""What decided a claim, for ``vitrail why``: its verdict, its cells, and a closed gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from replication.claims.comparison import CONFIDENCE
from replication.claims.judge import told_claim
from replication.records.records import read_sound
from replication.report.cell_provenance import changed_recipe, claim_cells, tell
from replication.report.formatting import table_of
from replication.report.ledger import (
    claims_of_paper,
    published_folder,
    read_published,
    renderings,
)
from replication.report.markdown_report import standing_of
from replication.report.print_table import with_unit
from replication.report.results import cells_of
from vitrail.commands import heading, say, table
from vitrail.errors import VitrailError, require_known

if TYPE_CHECKING:
    from replication.config.claims import Claim
    from replication.config.tuning import TuningResult
    from replication.plan.catalog import Catalog
    from replication.plan.paper import Paper
    from replication.records.specs import Cell

RULES = 'docs/results.md, "When a claim is not tested"'


def find_claim(catalog: Catalog, name: str) -> tuple[Paper, Claim]:
    """Return the claim of an id, or of PAPER/ID, and before it its paper.

    Raises:
        VitrailError: no paper, or several, have such a claim, or it is a table or figure that this
            scale does not make.
    """
    if name in catalog.written:
        catalog.target(name)
    known = {
        f"{paper.name}/{claim.id}": (paper, claim)
        for paper in catalog.papers.values()
        for claim in paper.claims
    }
    found = [full for full, (_, claim) in known.items() if name in (full, claim.id)]
    if not found:
        ids = known if "/" in name else [claim.id for _, claim in known.values()]
        require_known("table, figure or claim", name, [*catalog.targets, *catalog.written, *ids])
    if len(found) > 1:
        raise VitrailError(f"claim '{name}' is in several papers: name {' or '.join(found)}")
    return known[found[0]]


def explain(paper: Paper, claim: Claim, catalog: Catalog) -> dict[str, Any]:
    """Return what `vitrail why` prints of a claim, as plain data.

    ``claim`` has the columns of ``claims.csv``, as judged here or, if the claim is not run here, as
    published; ``results`` is the folder of the numbers, and ``elsewhere`` has the published
    statuses at other scales. ``changed`` are sentences on published numbers of other recipes than
    those planned now, by which such a claim is judged.

    Raises:
        VitrailError: a file of results, or a published record, is damaged.
    """
    folder = catalog.results
    judged = _row(claims_of_paper(catalog, paper, folder, read_sound), claim.id)
    published: dict[tuple[str, str, str], Cell] = {}
    if judged["status"] == "not run":
        folder = published_folder(catalog)
        records = read_published(folder)
        judged = _row(claims_of_paper(catalog, paper, folder, records.get), claim.id)
        published = {
            (target, cell.row, cell.column): cell
            for target, node in renderings(records).items()
            for cell in node.artifact.cells
        }
    cells, changed = [], set[str]()
    for name, cell in claim_cells(claim, paper.artifacts):
        artifact = paper.artifacts[name]
        shown = published.get((artifact.target, cell.row, cell.column))
        changed |= {changed_recipe(cell, shown) or ""} - {""}
        entry = table_of(artifact, cells_of(artifact, folder)).entry(cell.row, cell.column)
        cells.append(
            {
                "target": artifact.target,
                "row": cell.row,
                "column": cell.column,
                "measured": replace(entry.measured, mark="").text,
                "printed": with_unit(entry.printed.text, cell),
                "made_at_this_scale": bool(cell.records),
            }
        )
    others = {}
    for file in sorted(published_folder(catalog).parent.glob("*/claims.csv")):
        claims = pd.read_csv(file).set_index(["paper", "id"])["status"]
        status = claims.get((paper.name, claim.id), "not run")
        if file.parent.name != catalog.scale.name and status != "not run":
            others[file.parent.name] = status
    return {
        "paper": paper.name,
        "scale": catalog.scale.name,
        "claim": judged,
        "untested": claim.untested,
        "registered": (paper.registered or {}).get(claim.id),
        "searches": _searches(claim, paper),
        "results": str(folder),
        "changed": sorted(changed),
        "cells": cells,
        "elsewhere": others,
    }


def _searches(claim: Claim, paper: Paper) -> list[str]:
    """Return a sentence on each search of learning rates that a claim's models rely on."""
    results = [
        (paper.tuning_results or {}).get(measurement.on.recipe.hash)
        for _, cell in claim_cells(claim, paper.artifacts)
        if (measurement := paper.measurement_of(cell)) and measurement.on
    ]
    return list(dict.fromkeys(_told_search(result) for result in results if result))


def _told_search(result: TuningResult) -> str:
    best = max(result.rates, key=result.rates.__getitem__)
    rates = ", ".join(f"{score:.1f} % at {rate:g}" for rate, score in result.rates.items())
    return (
        f"{result.searched}, on held-out training images: {rates}; from twice the steps at "
        f"{best:g} {result.twice - result.once:+.1f} points"
    )


def _row(judged: pd.DataFrame, claim: str) -> dict[str, Any]:
    """Return the row of a claim; None for an empty value."""
    (row,) = judged[judged["id"] == claim].to_dict("records")
    return {str(name): None if pd.isna(value) else value for name, value in row.items()}


def print_explained(explained: Mapping[str, Any], catalog: Catalog) -> None:
    """Print what `explain` returns."""
    claim, scale = explained["claim"], explained["scale"]
    name = f"{explained['paper']}/{claim['id']}"
    heading(f"{name} ({claim['source']}) at scale {scale}")
    tell("statement", claim["statement"])
    tell("verdict", standing_of(claim, claim["status"]))
    tell("claimed", told_claim(claim))
    tell("found", claim["detail"])
    if claim["q"] is not None:
        tell("q-value", f"{claim['q']:.2g}; held and contrary need less than {1 - CONFIDENCE:.2g}")
    if claim["registration"]:
        tell("registered", explained["registered"] or "not as it is now")
    for number, result in enumerate(explained["searches"]):
        tell("" if number else "searched", result)
    for number, change in enumerate(explained["changed"]):
        tell("" if number else "changed", change)
    if claim["status"] == "not tested" and not explained["changed"]:
        _print_gate(explained)
    if claim["status"] == "not run":
        _print_not_run(explained, catalog)
    for number, (other, status) in enumerate(explained["elsewhere"].items()):
        command = f"vitrail why {name} --scale {other}"
        tell("" if number else "elsewhere", f"{status} in our results at scale {other}: {command}")
    say("")
    columns = ["target", "row", "column", "measured", "printed"]
    rows = [[cell[column] for column in columns] for cell in explained["cells"]]
    if rows:
        place = "" if claim["status"] == "not run" else f", in {explained['results']}/"
        table(columns, rows, columns[3:], f"What it compares{place}")
        target = explained["cells"][0]["target"]
        say(f"Where a number comes from: vitrail why {target} ROW COLUMN --scale {scale}")


def _print_gate(explained: Mapping[str, Any]) -> None:
    """Print what would let a claim be tested that is not: the reason is in its detail."""
    paper, scale = explained["paper"], explained["scale"]
    file = f"configs/papers/{paper}/scales/{scale}.yaml"
    if explained["claim"]["kind"] == "timing":
        tell("to test it", "measure it at a scale whose device is a GPU, such as full")
        return
    if explained["untested"]:
        tell("to test it", f"remove it from `untested` in {file}, if this reason no longer holds")
        return
    tell("to test it", f'change what the reason after "Not tested" names; {RULES} explains how')


def _print_not_run(explained: Mapping[str, Any], catalog: Catalog) -> None:
    """Print what would measure the cells of a claim."""
    targets = {cell["target"] for cell in explained["cells"] if cell["made_at_this_scale"]}
    if targets and all(cell["made_at_this_scale"] for cell in explained["cells"]):
        tell("to run it", f"{catalog.snakemake(' '.join(sorted(targets)))}{catalog.profile_hint}")
    else:
        scale = explained["scale"]
        tell(
            "to run it", f"scale {scale} does not measure all of its numbers; give another --scale"
        )
