"""Results made here against the published ones, cell by cell, claim by claim: `vitrail verify`.

First the published files are held against their records, and the files here against their
measurements, weights and code. Then every published number is looked for here:

- An exact number (a deterministic fact) must agree to the last printed digit.
- A number with a spread over seeds must lie within the 95 % interval that the spreads allow for the
  difference. One in twenty lies beyond it by chance, so a few may; how many, the binomial
  distribution says at 99 %.
- One run has no spread. It may differ by a quarter; if by more, it counts among those few.
- Times and memory are other on every machine, and are not compared.

A number that stands in several cells counts once.

Another published scale can stand in place of this one (`compare_with_scale`): compared are then the
numbers with a spread over seeds whose recipe is the same at both scales.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import pandas as pd
from scipy.stats import binom

from replication.commands.results import (
    RECORDS,
    altered_publications,
    changed_since_commit,
    claims_of,
    ledger_of,
    published_folder,
    read_published,
    rendering_fault,
)
from replication.commands.state import is_rendered
from replication.evidence.claims import Side
from replication.evidence.comparison import CONFIDENCE, difference_of_means, rounding_of
from replication.evidence.report import cells_of
from replication.plan.catalog import Catalog
from replication.plan.nodes import RenderingNode, ShownCell
from replication.plan.parts import Artifact
from vitrail.commands import count, heading, say, table
from vitrail.errors import VitrailError

Agreement = Literal["same", "within", "differs", "not compared", "missing here", "new here"]
AGREEMENTS: tuple[Agreement, ...] = get_args(Agreement)
# Of a number that several cells show, the agreement that comes first here among theirs counts.
WORSE: tuple[Agreement, ...] = (
    "differs", "missing here", "within", "same", "new here", "not compared"
)  # fmt: skip
RELATIVE_NOISE = 1e-9
ONE_RUN = 0.25  # of its value, the difference that a single run may show
JUDGED: tuple[Agreement, ...] = ("same", "within", "differs")
BY_CHANCE = 0.99  # how surely chance alone gives no more numbers beyond their intervals


@dataclass(frozen=True)
class Compared:
    """A cell as published and as measured here; `evidence` is the same for copies of a number."""

    artifact: str
    row: str
    column: str
    evidence: tuple[object, ...]
    exact: bool
    published: float
    ours: float
    allowed: float
    agreement: Agreement

    def told(self) -> dict[str, Any]:
        """All but the evidence, as JSON has it: None where there is no number."""
        named = {name: value for name, value in vars(self).items() if name != "evidence"}
        return {name: None if value != value else value for name, value in named.items()}  # NaN


@dataclass(frozen=True)
class Outcome:
    """What is found: `numbers` are `cells` without copies, `claims` those whose status changed."""

    altered: Sequence[str]
    cells: Sequence[Compared]
    numbers: Sequence[Compared]
    claims: Sequence[Mapping[Hashable, Any]]

    def counted(self, *agreements: Agreement, exact: bool | None = None) -> int:
        """How many numbers agree so; of all, or only of exact ones or others."""
        counted = [number for number in self.numbers if exact in (None, number.exact)]
        return sum(number.agreement in agreements for number in counted)

    @property
    def allowed(self) -> int:
        """How many numbers may lie beyond their interval by chance."""
        judged = self.counted(*JUDGED, exact=False)
        return int(binom.ppf(BY_CHANCE, judged, 1 - CONFIDENCE)) if judged else 0

    @property
    def odd(self) -> list[Compared]:
        """The numbers that differ or are missing here."""
        return [
            number for number in self.numbers if number.agreement in ("differs", "missing here")
        ]

    @property
    def lost(self) -> list[str]:
        """The claims that held as published and are contrary here, those on hardware left out."""
        return [
            claim["claim"]
            for claim in self.claims
            if (claim["published"], claim["here"]) == ("held", "contrary")
            and not claim["of_hardware"]
        ]

    @property
    def faults(self) -> dict[str, int]:
        """Why the results are not verified, with numbers; empty where they are."""
        found = {
            "altered": len(self.altered),
            "missing": self.counted("missing here"),
            "exact numbers that differ": self.counted("differs", exact=True),
            "differences too many": self.counted("differs", exact=False) - self.allowed,
            "claims lost": len(self.lost),
        }
        return {what: number for what, number in found.items() if number > 0}


def compare_all(catalog: Catalog, asked: Sequence[Artifact] | None = None) -> Outcome:
    """Check the published results and those here against their records, then compare the two.

    Of some artifacts, only these are checked here and compared, and the claims about them that are
    judged here.

    Raises:
        VitrailError: there is nothing to compare, of the scale or of one of the artifacts.
    """
    artifacts = [*catalog.artifacts] if asked is None else asked
    published = _require_published(catalog, catalog.scale.name)
    if missing := [
        artifact.target for artifact in asked or () if not is_rendered(artifact, catalog)
    ]:
        commands = catalog.snakemake(" ".join(missing))
        raise VitrailError(f"{', '.join(missing)}: not made here yet; run {commands} first")
    _require_results(catalog)
    altered = [*published_faults(catalog), *altered_here(artifacts, catalog)]
    cells = [cell for artifact in artifacts for cell in compare(artifact, catalog, published)]
    ours = claims_of(catalog, catalog.results)
    if asked is not None:
        of = ours["id"].str.partition("/")[0] + "_" + ours["artifact"]
        ours = ours[
            of.isin([artifact.target for artifact in asked]) & (ours["status"] != "not run")
        ]
        compared = {cell.artifact for cell in cells}
        if empty := [artifact.target for artifact in artifacts if artifact.target not in compared]:
            raise VitrailError(
                f"{', '.join(empty)}: no number here or in {published} to compare; leave it out"
            )
    claims = changed_claims(claims_of(catalog, published), ours)
    return Outcome(altered, cells, _count_once(cells), claims)


def published_scales(catalog: Catalog) -> list[str]:
    """The names of the scales that have published results."""
    files = published_folder(catalog).parent.glob("*/*/*.csv")
    return sorted({file.parents[1].name for file in files})


def _require_published(catalog: Catalog, scale: str) -> Path:
    folder = published_folder(catalog).parent / scale
    if not any(folder.glob("*/*.csv")):
        known = ", ".join(published_scales(catalog)) or "none is"
        raise VitrailError(
            f"{folder} holds no results to compare; choose a scale that is published: {known}"
        )
    return folder


def _require_results(catalog: Catalog) -> None:
    if not any(catalog.results.glob("*/*.csv")):
        raise VitrailError(
            f"{catalog.results} holds no results to compare; run {catalog.snakemake('all')} first"
        )


def compare_with_scale(catalog: Catalog, scale: str) -> Outcome:
    """Set the numbers here beside those that another scale published under other seeds.

    Compared are cells whose recipe and dataset are the same at both scales, of one or more seeds,
    where a spread over seeds says how far two such numbers lie apart.

    Raises:
        VitrailError: that scale is not published, or there are no results here.
    """
    published = _require_published(catalog, scale)
    _require_results(catalog)
    cells = []
    for artifact in catalog.artifacts:
        spread = _of_one_recipe(cells_of(artifact, published), cells_of(artifact, catalog.results))
        cells += [
            cell
            for cell in compare(artifact, catalog, published)
            if (cell.row, cell.column) in spread and cell.agreement in JUDGED and not cell.exact
        ]
    return Outcome([], cells, _count_once(cells), [])


def _of_one_recipe(published: pd.DataFrame, ours: pd.DataFrame) -> set[tuple[str, str]]:
    """The rows and columns that rest on the same recipe in both, and have a spread in one."""
    names = ["row", "column", "recipe_hash", "dataset"]
    both = published.merge(ours, on=names, suffixes=("", "_here")).dropna(subset=["recipe_hash"])
    spread = both["std"].notna() | both["std_here"].notna()
    return set(zip(both.loc[spread, "row"], both.loc[spread, "column"], strict=True))


def _count_once(cells: Sequence[Compared]) -> list[Compared]:
    """One cell for each number: of its copies the one that agrees worst."""
    worst: dict[tuple[object, ...], Compared] = {}
    for cell in cells:
        known = worst.setdefault(cell.evidence, cell)
        if WORSE.index(cell.agreement) < WORSE.index(known.agreement):
            worst[cell.evidence] = cell
    return list(worst.values())


def told_published(catalog: Catalog) -> str:
    """What `published_faults` checks, in a sentence."""
    folder = published_folder(catalog)
    nodes = [record.node for record in read_published(folder).values()]
    rendered = sum(isinstance(node, RenderingNode) for node in nodes)
    return (
        f"Checked: {count(rendered, 'artifact')} in {folder}/, byte by byte what the "
        f"{count(len(nodes) - rendered, 'record')} of measurements and trainings there give. No "
        "training and no measurement was repeated."
    )


def published_faults(catalog: Catalog) -> Iterator[str]:
    """What is wrong with what is published, by itself: no training and no run is needed.

    Every published table and figure is rendered again from the published records, and the folder is
    compared with the last commit.
    """
    folder = published_folder(catalog)
    records = read_published(folder)
    if not records:
        yield f"{folder} has no {RECORDS}, so nothing vouches for what is published"
    yield from changed_since_commit(folder)
    yield from altered_publications(folder, records)
    known = {artifact.target for artifact in catalog.artifacts}
    for record in records.values():
        if isinstance(record.node, RenderingNode) and record.node.target not in known:
            yield f"{record.node.target} is published and is no artifact of this scale"


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
            yield fault.remedy(node.target, catalog.snakemake)


def compare(artifact: Artifact, catalog: Catalog, published: Path) -> Iterator[Compared]:
    """Set an artifact's cells here beside the published ones; cells in neither are left out."""
    before = _by_key(cells_of(artifact, published))
    after = _by_key(cells_of(artifact, catalog.results))
    declared = {(cell.row, cell.column): cell for cell in catalog.rendering_node(artifact).cells}
    nothing = Side(math.nan, math.nan, 0)
    for key in before | after:
        old, new = before.get(key, nothing), after.get(key, nothing)
        if math.isnan(old.value) and math.isnan(new.value):
            continue
        cell = declared.get(key)
        shown = (cell.measurement, cell.key) if cell and cell.measurement else None
        allowed = _allowed(old, new, cell)
        yield Compared(
            artifact=artifact.target,
            row=key[0],
            column=key[1],
            evidence=shown or (artifact.paper, artifact.name, *key),
            exact=cell is not None and cell.exact,
            published=old.value,
            ours=new.value,
            allowed=allowed,
            agreement=_agreement(old.value, new.value, allowed, cell),
        )


def _by_key(cells: pd.DataFrame) -> dict[tuple[str, str], Side]:
    columns = (cells[name] for name in ("row", "column", "measured", "std", "n_seeds"))
    return {
        (str(row), str(column)): Side(float(measured), float(std), int(n_seeds))
        for row, column, measured, std, n_seeds in zip(*columns, strict=True)
    }


def _allowed(old: Side, new: Side, cell: ShownCell | None) -> float:
    """The difference that agrees."""
    if cell is not None and cell.exact:
        printed = cell.printed.value if cell.printed else None
        return rounding_of(cell, printed if isinstance(printed, float) else old.value)
    spreads = [number for number in (old, new) if number.n_seeds > 1 and not math.isnan(number.std)]
    if not spreads:
        return ONE_RUN * abs(old.value)
    if len(spreads) == 1:
        return difference_of_means(spreads[0].n_seeds, spreads[0].std, 1, None).half_width
    return difference_of_means(old.n_seeds, old.std, new.n_seeds, new.std).half_width


def _agreement(old: float, new: float, allowed: float, cell: ShownCell | None) -> Agreement:
    if math.isnan(new):
        return "missing here"
    if math.isnan(old):
        return "new here"
    if cell is not None and cell.of_hardware:
        return "not compared"
    difference = abs(new - old)
    if difference <= RELATIVE_NOISE * abs(old):
        return "same"
    return "within" if difference <= allowed else "differs"


def changed_claims(published: pd.DataFrame, ours: pd.DataFrame) -> list[dict[Hashable, Any]]:
    """The claims whose status is not what it was.

    `claim`, `published` and `here` (the statuses), `of_hardware` and `statement`.
    """
    if published.empty:
        return []
    both = published.merge(ours, on="id", suffixes=("", "_here"))
    changed = both[both["status"] != both["status_here"]]
    names = {"id": "claim", "status": "published", "status_here": "here"}
    names |= {"of_hardware": "of_hardware", "statement": "statement"}
    return changed[[*names]].rename(columns=names).to_dict("records")


def record(outcome: Outcome) -> dict[str, Any]:
    """What is printed, as numbers."""
    return {
        "verified": not outcome.faults,
        "faults": outcome.faults,
        "numbers": {kind: outcome.counted(kind) for kind in AGREEMENTS},
        "allowed_by_chance": outcome.allowed,
        "altered": outcome.altered,
        "odd": [number.told() for number in outcome.odd],
        "claims": outcome.claims,
        "claims_lost": outcome.lost,
    }


def print_faults(faults: Sequence[str], as_json: bool) -> None:
    """Print what is wrong with results, a sentence each, or as JSON; or that nothing is."""
    if as_json:
        say(json.dumps({"verified": not faults, "altered": faults}, indent=2))
        return
    say(*(f"  {sentence}" for sentence in faults))
    say(f"Not verified: {count(len(faults), 'fault')}." if faults else "Verified.")


def print_outcome(outcome: Outcome) -> None:
    """Print what was altered, how numbers agree, which differ, and which claims changed."""
    if outcome.altered:
        heading("Altered")
        say(*(f"  {sentence}" for sentence in outcome.altered))
    counts = Counter((cell.artifact, cell.agreement) for cell in outcome.cells)
    names = dict.fromkeys(name for name, _ in counts)
    rows = [[name, *(counts[name, kind] or None for kind in AGREEMENTS)] for name in names]
    table(["artifact", *AGREEMENTS], rows, AGREEMENTS, "Cells, here against published")
    _print_odd(outcome, "Numbers that differ or are missing")
    if outcome.claims:
        columns = ["claim", "published", "here", "statement"]
        rows = [[claim[name] for name in columns] for claim in outcome.claims]
        table(columns, rows, title="Claims that come out otherwise")
    compared = outcome.counted(*JUDGED)
    wanted = compared + outcome.counted("missing here")
    say(
        f"{compared} of {count(wanted, 'number')} compared, "
        f"{outcome.counted('differs', exact=False)} differ beyond their interval (chance allows "
        f"{outcome.allowed} of {outcome.counted(*JUDGED, exact=False)}); "
        f"{outcome.counted('not compared')} are times or memory."
    )
    if outcome.lost:
        say(f"Claims lost: {', '.join(outcome.lost)}.")
    if faults := "; ".join(f"{what}: {number}" for what, number in outcome.faults.items()):
        say(f"Not verified: {faults}.")
        if "missing" in outcome.faults:
            say("`vitrail verify TARGET ...` compares only the targets that you name.")
    else:
        say("Verified.")


def print_beside(outcome: Outcome, scale: str, other: str) -> None:
    """Print which numbers of a scale lie apart from those of another, and how many of how many."""
    _print_odd(outcome, f"Numbers of {scale} beyond the interval that {other} allows")
    say(told_beside(outcome, scale, other))


def told_beside(outcome: Outcome, scale: str, other: str) -> str:
    """How many numbers of a scale lie within the intervals that another allows, in a sentence."""
    compared, beyond = outcome.counted(*JUDGED), outcome.counted("differs")
    return (
        f"{count(compared, 'number')} of scale {scale} have the same recipe at scale {other}, "
        f"under other seeds: {compared - beyond} lie within the 95 % interval of the difference, "
        f"{beyond} beyond (chance allows {outcome.allowed})."
    )


def _print_odd(outcome: Outcome, title: str) -> None:
    if outcome.odd:
        columns = ["artifact", "row", "column", "published", "here", "allowed", ""]
        lines = [_line(number) for number in outcome.odd]
        table(columns, lines, ["published", "here", "allowed"], title)


def _line(number: Compared) -> list[str]:
    numbers = (f"{number.published:.6g}", f"{number.ours:.6g}", f"{number.allowed:.2g}")
    failed = "EXACT, FAILED" if number.exact and number.agreement == "differs" else number.agreement
    return [number.artifact, number.row, number.column, *numbers, failed]
