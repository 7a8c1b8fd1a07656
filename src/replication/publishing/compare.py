"""Compare results made here with the published ones, by cell and by claim: `vitrail verify`.

First, the published files are compared with their records, and the files here with their
measurements, weights and code. Then every published number is compared with the number here:

- An exact number (a deterministic fact) must agree to the last printed digit.
- Any other number must lie within the 95 % interval of the difference of two repetitions. By
  chance, one in twenty lies beyond it; `replication.claims.repetition` defines how far beyond a
  number may lie, and how many of a table or figure.
- Times and memory differ between machines and are not compared.
- A number of a model trained by another recipe than the published one is no repetition, even if
  it agrees.

A number that several cells show counts once.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import pandas as pd

from replication.claims.comparison import rounding_of
from replication.claims.judge import Side
from replication.claims.repetition import (
    OF_LARGEST,
    beyond_chance,
    difference,
    trainings_allowed,
    trainings_beyond,
)
from replication.plan.catalog import Catalog
from replication.publishing.publish import published_results
from replication.records.records import read_sound
from replication.records.specs import Artifact, Cell
from replication.report.html_report import write_summary
from replication.report.ledger import (
    RECORDS,
    altered_publications,
    changed_since_commit,
    claims_of,
    ledger_of,
    published_folder,
    read_published,
    rendering_fault,
    renderings,
)
from replication.report.progress import is_rendered
from replication.report.results import cells_of
from vitrail.commands import count, heading, say, table
from vitrail.errors import VitrailError

Agreement = Literal["same", "within", "differs", "not compared", "missing here", "new here"]
AGREEMENTS: tuple[Agreement, ...] = get_args(Agreement)
# If several cells show one number, that of their agreements counts which comes first here.
WORSE: tuple[Agreement, ...] = (
    "differs", "missing here", "within", "same", "new here", "not compared"
)  # fmt: skip
RELATIVE_NOISE = 1e-9
ROUNDING = 1e-6  # of float32: absolute for numbers up to 1, relative for larger ones
JUDGED: tuple[Agreement, ...] = ("same", "within", "differs")
ALL = "all tables and figures"


@dataclass(frozen=True)
class Compared:
    """A cell as published and as measured here; `evidence` is equal for copies of a number.

    `allowed` is half the 95 % interval of the difference, and `p_value` the probability of a
    difference as large by chance. `training` identifies what trained the model, or, without a
    model, what measured the number. `other_recipe` tells that the model here was trained by another
    recipe than the published one.
    """

    artifact: str
    row: str
    column: str
    evidence: tuple[object, ...]
    training: str
    exact: bool
    published: float
    ours: float
    allowed: float
    p_value: float
    agreement: Agreement
    other_recipe: bool

    def told(self) -> dict[str, Any]:
        """Return all fields except the evidence, as JSON has them: None for NaN."""
        named = {name: value for name, value in vars(self).items() if name != "evidence"}
        return {name: None if value != value else value for name, value in named.items()}  # NaN


@dataclass(frozen=True)
class Crowded:
    """A table or figure with more trainings beyond their 95 % interval than allowed."""

    artifact: str
    beyond: int
    trainings: int
    allowed: int


@dataclass(frozen=True)
class Outcome:
    """The outcome of a comparison.

    `altered` are sentences on files that differ from their records. `numbers` are `cells` without
    copies. `claims` are those whose status has changed. `not_made` are the published artifacts that
    are not made here, if all are compared. `restored` of the measurements are the published ones.
    """

    altered: Sequence[str]
    cells: Sequence[Compared]
    numbers: Sequence[Compared]
    claims: Sequence[Mapping[Hashable, Any]]
    not_made: Sequence[str]
    restored: int

    def counted(self, *agreements: Agreement, exact: bool | None = None) -> int:
        """Return how many numbers have one of these agreements.

        With `exact` True or False, only exact numbers, or only the others, are counted.
        """
        counted = [number for number in self.numbers if exact in (None, number.exact)]
        return sum(number.agreement in agreements for number in counted)

    @property
    def judged(self) -> list[Compared]:
        """Return the numbers that chance may change: compared, and not exact."""
        return _judged(self.numbers)

    @property
    def beyond_chance(self) -> list[Compared]:
        """Return the numbers that differ by more than chance explains."""
        beyond = beyond_chance([number.p_value for number in self.judged])
        return [number for number, is_beyond in zip(self.judged, beyond, strict=True) if is_beyond]

    @property
    def crowded(self) -> list[Crowded]:
        """Return the tables and figures, and all together, in which too many trainings differ."""
        families = {ALL: self.judged}
        for cell in self.cells:
            families.setdefault(cell.artifact, []).append(cell)
        counts = {
            name: trainings_beyond(
                (number.training, number.p_value) for number in _judged(_count_once(cells))
            )
            for name, cells in families.items()
        }
        found = (
            Crowded(name, beyond, trainings, trainings_allowed(trainings, len(families)))
            for name, (beyond, trainings) in counts.items()
        )
        return [family for family in found if family.beyond > family.allowed]

    @property
    def odd(self) -> list[Compared]:
        """Return the numbers that differ or are missing here."""
        return [
            number for number in self.numbers if number.agreement in ("differs", "missing here")
        ]

    @property
    def lost(self) -> list[str]:
        """Return the claims held as published and contrary here, except those on hardware."""
        return [
            claim["claim"]
            for claim in self.claims
            if (claim["published"], claim["here"]) == ("held", "contrary")
            and not claim["of_hardware"]
        ]

    @property
    def faults(self) -> dict[str, int]:
        """Return the reasons why the results are not verified, with counts; {} if they are."""
        found = {
            "altered": len(self.altered),
            "numbers of other recipes": sum(number.other_recipe for number in self.numbers),
            "missing": self.counted("missing here"),
            "exact numbers that differ": self.counted("differs", exact=True),
            "numbers further apart than chance allows": len(self.beyond_chance),
            "tables with more differences than chance allows": len(self.crowded),
            "claims lost": len(self.lost),
        }
        return {what: number for what, number in found.items() if number > 0}


def compare_all(catalog: Catalog, asked: Sequence[Artifact] | None = None) -> Outcome:
    """Check the published results and those here against their records, then compare the two.

    Only the artifacts that are made here, or those of `asked`, are checked here and compared, and
    only claims on them that are judged here. Of the published artifacts all are rendered again, or
    those of `asked`.

    Raises:
        VitrailError: there is nothing to compare, of the scale or of one of the artifacts.
    """
    made = [artifact for artifact in catalog.artifacts if is_rendered(artifact, catalog)]
    artifacts = made if asked is None else asked
    published = published_folder(catalog)
    if not any(published.glob("*/*.csv")):
        known = {file.parents[1].name for file in published.parent.glob("*/*/*.csv")}
        raise VitrailError(
            f"{published} holds no results to compare; choose a scale that is published: "
            + (", ".join(sorted(known)) or "none is")
            + f". vitrail show --scale {catalog.settings.scale} compares with what the papers print"
        )
    if missing := [artifact.target for artifact in artifacts if artifact not in made]:
        commands = catalog.snakemake(" ".join(missing))
        raise VitrailError(f"{', '.join(missing)}: not made here yet; run {commands} first")
    if not artifacts:
        raise VitrailError(
            f"{catalog.results} holds no finished table or figure to compare; run "
            f"{catalog.snakemake('all')} first"
        )
    targets = {artifact.target for artifact in artifacts}
    rendered = None if asked is None else targets
    altered = [*published_faults(catalog, rendered), *altered_here(artifacts, catalog)]
    cells = [cell for artifact in artifacts for cell in compare(artifact, catalog, published)]
    ours = claims_of(catalog, catalog.results)
    of = ours["id"].astype(str).str.split("/").str[0] + "_" + ours["artifact"]
    ours = ours[of.isin(targets) & (ours["status"] != "not run")]
    compared = {cell.artifact for cell in cells}
    if empty := [artifact.target for artifact in asked or () if artifact.target not in compared]:
        raise VitrailError(
            f"{', '.join(empty)}: no number here or in {published} to compare; leave it out"
        )
    claims = changed_claims(claims_of(catalog, published), ours)
    others = catalog.artifacts if asked is None else []
    not_made = [
        artifact.target
        for artifact in others
        if artifact not in made and not cells_of(artifact, published).empty
    ]
    records = read_published(published)
    paths = {path for artifact in artifacts for path in artifact.records if path in records}
    here = {path: found.content for path in paths if (found := read_sound(path))}
    restored = sum(content == records[path].content for path, content in here.items())
    return Outcome(altered, cells, _count_once(cells), claims, not_made, restored)


def _judged(numbers: Iterable[Compared]) -> list[Compared]:
    return [number for number in numbers if number.agreement in JUDGED and not number.exact]


def _count_once(cells: Sequence[Compared]) -> list[Compared]:
    """Return one cell for each number: of its copies the one that agrees worst."""
    worst: dict[tuple[object, ...], Compared] = {}
    for cell in cells:
        known = worst.setdefault(cell.evidence, cell)
        if WORSE.index(cell.agreement) < WORSE.index(known.agreement):
            worst[cell.evidence] = cell
    return list(worst.values())


def told_published(catalog: Catalog) -> str:
    """Return a sentence on what `published_faults` checks."""
    folder = published_folder(catalog)
    records = read_published(folder)
    rendered = len(renderings(records))
    return (
        f"Checked: {count(rendered, 'artifact')} in {folder}/, byte by byte what the "
        f"{count(len(records) - rendered, 'record')} of measurements and trainings there give, and "
        "the report with its claims and models. No training and no measurement was repeated."
    )


def published_faults(catalog: Catalog, targets: Set[str] | None = None) -> Iterator[str]:
    """Yield the faults of the published results by themselves; no training or run is needed.

    Every published table and figure, or those of `targets`, is rendered again from the published
    records, and the folder is compared with the last commit.
    """
    folder = published_folder(catalog)
    records = read_published(folder)
    if not records:
        yield f"{folder} has no {RECORDS}, so nothing vouches for what is published"
    yield from changed_since_commit(folder)
    yield from altered_publications(folder, records, targets)
    known = {artifact.target for artifact in catalog.artifacts}
    for target in renderings(records):
        if target not in known:
            yield f"{target} is published and is no artifact of this scale"


def summary_faults(catalog: Catalog) -> Iterator[str]:
    """Yield a sentence for each file of the published report that is not what would be written now.

    The report follows from the published records, and from the claims, registrations, recipes and
    searches in ``configs/``.
    """
    folder = published_folder(catalog)
    results = published_results(catalog, folder, read_published(folder))
    with tempfile.TemporaryDirectory(prefix="vitrail-") as temporary:
        for made in write_summary(results, Path(temporary) / "report.json"):
            if not made.is_file():  # the page, which is not published
                continue
            path = folder / made.name
            if not path.is_file() or path.read_bytes() != made.read_bytes():
                yield (
                    f"{path} is not what the published records and configs/ give: restore by git "
                    f"what was changed, or run vitrail publish --only-render --scale "
                    f"{catalog.scale.name}"
                )


def altered_here(artifacts: Iterable[Artifact], catalog: Catalog) -> Iterator[str]:
    """Yield a sentence for each result here that differs from what its records give."""
    ledger, told = ledger_of(catalog), set()
    for artifact in artifacts:
        if not is_rendered(artifact, catalog):
            continue
        node = catalog.rendering_node(artifact)
        fault = rendering_fault(node, ledger)
        if fault and fault.what not in told:
            told.add(fault.what)
            yield fault.remedy(artifact.target, catalog.snakemake)


def _largest(cells: pd.DataFrame, column: str) -> dict[Any, float]:
    """Return the largest absolute value of a column among the cells of each metric and unit."""
    known = cells.dropna(subset=[column])
    return known[column].abs().groupby([known["metric"], known["unit"]]).max().to_dict()


def compare(artifact: Artifact, catalog: Catalog, published: Path) -> Iterator[Compared]:
    """Yield an artifact's cells here and as published; without those that have neither number."""
    cells = cells_of(artifact, published)
    largest, spreads = _largest(cells, "measured"), _largest(cells, "std")
    before, after = _by_key(cells), _by_key(cells_of(artifact, catalog.results))
    declared = {(cell.row, cell.column): cell for cell in artifact.cells}
    nothing = Side(math.nan, math.nan, 0)
    for key in before | after:
        old, new = before.get(key, nothing), after.get(key, nothing)
        if math.isnan(old.value) and math.isnan(new.value):
            continue
        cell = declared.get(key)
        measurement = catalog.measurement_of(cell) if cell else None
        hashes = (old.recipe_hash, new.recipe_hash) if measurement and measurement.run else ()
        shown = (cell.records, cell.key) if cell and cell.records else None
        kind = (old.metric, old.unit)
        yield Compared(
            artifact=artifact.target,
            row=key[0],
            column=key[1],
            evidence=shown or (artifact.paper, artifact.name, *key),
            training=old.recipe_hash or str(shown[0] if shown else artifact.target),
            exact=cell is not None and cell.exact,
            published=old.value,
            ours=new.value,
            other_recipe="" not in hashes and len(set(hashes)) > 1,
            **_compared(old, new, cell, spreads.get(kind, 0.0), largest.get(kind, math.nan)),
        )


def _by_key(cells: pd.DataFrame) -> dict[tuple[str, str], Side]:
    return {
        (cell["row"], cell["column"]): Side(
            cell["measured"],
            cell["std"],
            cell["n_seeds"],
            recipe_hash=cell["recipe_hash"],
            unit=cell["unit"],
            metric=cell["metric"],
        )
        for cell in cells.to_dict("records")
    }


def _compared(
    old: Side, new: Side, cell: Cell | None, spread: float, largest: float
) -> dict[str, Any]:
    """Return the fields `allowed`, `p_value` and `agreement` of a compared cell.

    `spread` is the largest published standard deviation of its metric in the artifact, and
    `largest` the largest published number of this metric.
    """
    if math.isnan(old.value) or math.isnan(new.value):
        missing: Agreement = "missing here" if math.isnan(new.value) else "new here"
        return {"allowed": math.nan, "p_value": math.nan, "agreement": missing}
    apart = abs(new.value - old.value)
    noise = ROUNDING * max(1.0, abs(old.value))
    if cell is not None and cell.exact:
        noise = RELATIVE_NOISE * abs(old.value)
        printed = cell.printed.value if cell.printed else None
        allowed = rounding_of(cell, printed if isinstance(printed, float) else old.value)
        p_value = float(apart <= allowed)
    elif known := difference(old, new, spread):
        allowed, p_value = known.half_width, known.p_value(apart)
    else:
        allowed = OF_LARGEST * largest
        p_value = float(apart <= allowed)
    agreement: Agreement = "within" if apart <= allowed else "differs"
    if cell is not None and cell.of_hardware:
        agreement = "not compared"
    elif apart <= noise:
        agreement, p_value = "same", 1.0
    return {"allowed": allowed, "p_value": p_value, "agreement": agreement}


def changed_claims(published: pd.DataFrame, ours: pd.DataFrame) -> list[dict[Hashable, Any]]:
    """Return the claims whose status here is not the published one.

    Each has `claim`, `published` and `here` (the two statuses), `of_hardware` and `statement`.
    """
    if published.empty:
        return []
    both = published.merge(ours, on="id", suffixes=("", "_here"))
    changed = both[both["status"] != both["status_here"]]
    names = {"id": "claim", "status": "published", "status_here": "here"}
    names |= {"of_hardware": "of_hardware", "statement": "statement"}
    return changed[[*names]].rename(columns=names).to_dict("records")


def record(outcome: Outcome) -> dict[str, Any]:
    """Return what is printed, as plain data."""
    return {
        "verified": not outcome.faults,
        "faults": outcome.faults,
        "numbers": {kind: outcome.counted(kind) for kind in AGREEMENTS},
        "beyond_chance": [number.told() for number in outcome.beyond_chance],
        "tables_beyond_chance": [vars(family) for family in outcome.crowded],
        "altered": outcome.altered,
        "other_recipes": [number.told() for number in outcome.numbers if number.other_recipe],
        "odd": [number.told() for number in outcome.odd],
        "claims": outcome.claims,
        "claims_lost": outcome.lost,
        "not_made": outcome.not_made,
        "restored_measurements": outcome.restored,
    }


def print_faults(faults: Sequence[str], as_json: bool) -> None:
    """Print the faults of results, one sentence each, or that there are none; `as_json` as JSON."""
    if as_json:
        say(json.dumps({"verified": not faults, "altered": faults}, indent=2))
        return
    say(*(f"  {sentence}" for sentence in faults))
    say(f"Not verified: {count(len(faults), 'fault')}." if faults else "Verified.")


def print_outcome(outcome: Outcome) -> None:
    """Print altered files, counts of agreements, numbers that differ, and claims that changed."""
    if outcome.altered:
        heading("Altered")
        say(*(f"  {sentence}" for sentence in outcome.altered))
    counts = Counter((cell.artifact, cell.agreement) for cell in outcome.cells)
    names = dict.fromkeys(name for name, _ in counts)
    rows = [[name, *(counts[name, kind] or None for kind in AGREEMENTS)] for name in names]
    table(["artifact", *AGREEMENTS], rows, AGREEMENTS, "Cells, here against published")
    _print_odd(outcome, "Numbers that differ or are missing")
    if others := {cell.artifact: None for cell in outcome.cells if cell.other_recipe}:
        say(
            f"In {', '.join(others)}, models here were trained by other recipes than the published "
            "ones, so these are no repetitions."
        )
    if outcome.claims:
        columns = ["claim", "published", "here", "statement"]
        rows = [[claim[name] for name in columns] for claim in outcome.claims]
        table(columns, rows, title="Claims that come out otherwise")
    compared = outcome.counted(*JUDGED)
    wanted = compared + outcome.counted("missing here")
    beyond = outcome.counted("differs", exact=False)
    say(
        f"{compared} of {count(wanted, 'number')} compared; {beyond} lie beyond their 95 % "
        f"interval, {len(outcome.beyond_chance)} further than chance allows; "
        f"{outcome.counted('not compared')} are times or memory.",
        *(
            f"In {family.artifact}, {family.beyond} of {count(family.trainings, 'training')} have "
            f"a number beyond its interval; chance allows {family.allowed}."
            for family in outcome.crowded
        ),
    )
    if outcome.lost:
        say(f"Claims lost: {', '.join(outcome.lost)}.")
    if outcome.not_made:
        left_out = count(len(outcome.not_made), "published artifact")
        say(f"Not made here, so not compared: {left_out}.")
    if outcome.restored:
        say(
            f"{count(outcome.restored, 'measurement')} here, restored or published from here, are "
            "the published ones: their agreement is no evidence."
        )
    if faults := "; ".join(f"{what}: {number}" for what, number in outcome.faults.items()):
        say(f"Not verified: {faults}.")
        if "missing" in outcome.faults:
            say("`vitrail verify TARGET ...` compares only the targets that you name.")
    else:
        say("Verified.")


def _print_odd(outcome: Outcome, title: str) -> None:
    if outcome.odd:
        columns = ["artifact", "row", "column", "published", "here", "allowed", ""]
        beyond = {number.evidence for number in outcome.beyond_chance}
        lines = [_line(number, number.evidence in beyond) for number in outcome.odd]
        table(columns, lines, ["published", "here", "allowed"], title)


def _line(number: Compared, beyond_chance: bool) -> list[str]:
    numbers = (f"{number.published:.6g}", f"{number.ours:.6g}", f"{number.allowed:.2g}")
    told: str = "NOT BY CHANCE" if beyond_chance else number.agreement
    if number.exact and number.agreement == "differs":
        told = "EXACT, FAILED"
    return [number.artifact, number.row, number.column, *numbers, told]
