"""``vitrine verify``: results made here against the published ones, cell by cell, claim by claim.

An exact cell (a deterministic fact) must agree to the last printed digit. Any other number must lie
within the 95 % interval that both spreads over seeds allow for the difference; where neither side
has a spread, only an equal number agrees, and a different one is listed but fails nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd

from vitrine.artifacts.comparison import difference_half_width, rounding_of
from vitrine.artifacts.report import cells_of
from vitrine.commands.console import heading, say, table
from vitrine.commands.results import claims_of, published_folder
from vitrine.errors import VitrineError
from vitrine.plan.catalog import Artifact, Catalog, Cell

Agreement = Literal["same", "within", "differs", "no spread", "not run here", "not published"]
AGREEMENTS: tuple[Agreement, ...] = (
    "same", "within", "differs", "no spread", "not run here", "not published"
)  # fmt: skip
RELATIVE_NOISE = 1e-9


@dataclass(frozen=True)
class Compared:
    """A cell as published and as measured here."""

    artifact: str
    row: str
    column: str
    exact: bool
    published: float
    ours: float
    allowed: float
    agreement: Agreement

    @property
    def fails(self) -> bool:
        """A deterministic fact that came out differently."""
        return self.exact and self.agreement == "differs"


def verify(catalog: Catalog) -> bool:
    """Compare a scale's results with the published ones, and print what differs.

    Returns:
        Whether every exact cell and every claim that held as published holds here.

    Raises:
        VitrineError: there is nothing published at this scale, or nothing here.
    """
    published = published_folder(catalog)
    for folder, remedy in (
        (published, "choose a scale that was published"),
        (catalog.results, f"run snakemake all --config scale={catalog.scale.name} first"),
    ):
        if not any(folder.glob("*/*.csv")):
            raise VitrineError(f"{folder} holds no results to compare; {remedy}")
    compared = [
        one for artifact in catalog.artifacts for one in compare(artifact, catalog, published)
    ]
    _print_cells(compared)
    lost = _print_claims(claims_of(catalog, published), claims_of(catalog, catalog.results))
    failed = sum(one.fails for one in compared)
    verified = not failed and not lost
    if verified:
        say("Verified: every exact cell measured here agrees, and no claim that held is lost.")
    else:
        names = f" ({', '.join(lost)})" if lost else ""
        say(f"Not verified: exact cells that differ: {failed}; claims lost: {len(lost)}{names}.")
    return verified


def compare(artifact: Artifact, catalog: Catalog, published: Path) -> Iterator[Compared]:
    """Set an artifact's cells here beside the published ones; cells in neither are left out."""
    before = _by_place(cells_of(artifact, catalog, published))
    after = _by_place(cells_of(artifact, catalog, catalog.results))
    declared = {(cell.row, cell.column): cell for cell in artifact.cells}
    for place in dict.fromkeys([*before, *after]):
        old, new = before.get(place, _NOTHING), after.get(place, _NOTHING)
        if math.isnan(old.measured) and math.isnan(new.measured):
            continue
        cell = declared.get(place)
        allowed = _allowed(old, new, cell)
        yield Compared(
            artifact=f"{artifact.paper}_{artifact.name}",
            row=place[0],
            column=place[1],
            exact=cell is not None and cell.exact,
            published=old.measured,
            ours=new.measured,
            allowed=allowed,
            agreement=_agreement(old.measured, new.measured, allowed),
        )


@dataclass(frozen=True)
class _Number:
    measured: float
    std: float
    n_seeds: int


_NOTHING = _Number(math.nan, math.nan, 0)


def _by_place(cells: pd.DataFrame) -> dict[tuple[str, str], _Number]:
    columns = (cells[name] for name in ("row", "column", "measured", "std", "n_seeds"))
    return {
        (str(row), str(column)): _Number(float(measured), float(std), int(n_seeds))
        for row, column, measured, std, n_seeds in zip(*columns, strict=True)
    }


def _allowed(old: _Number, new: _Number, cell: Cell | None) -> float:
    """The difference that agrees; not a number where nothing tells."""
    if cell is not None and cell.exact:
        printed = cell.printed.value if cell.printed else None
        return rounding_of(cell, printed if isinstance(printed, float) else old.measured)
    spreads = [number for number in (old, new) if number.n_seeds > 1 and not math.isnan(number.std)]
    if not spreads:
        return math.nan
    if len(spreads) == 1:
        return difference_half_width(spreads[0].n_seeds, spreads[0].std, 1, None)
    return difference_half_width(old.n_seeds, old.std, new.n_seeds, new.std)


def _agreement(old: float, new: float, allowed: float) -> Agreement:
    if math.isnan(new):
        return "not run here"
    if math.isnan(old):
        return "not published"
    difference = abs(new - old)
    if difference <= RELATIVE_NOISE * abs(old):
        return "same"
    if math.isnan(allowed):
        return "no spread"
    return "within" if difference <= allowed else "differs"


def _print_cells(compared: list[Compared]) -> None:
    heading("Cells, here against published")
    by_artifact: dict[str, Counter[Agreement]] = {}
    for one in compared:
        by_artifact.setdefault(one.artifact, Counter())[one.agreement] += 1
    rows = [
        [name, *(counts[agreement] or None for agreement in AGREEMENTS)]
        for name, counts in by_artifact.items()
    ]
    table(["artifact", *AGREEMENTS], rows, right=AGREEMENTS)
    odd = [one for one in compared if one.agreement in ("differs", "no spread")]
    if odd:
        heading("Cells that differ")
        header = ["artifact", "row", "column", "published", "here", "allowed", ""]
        lines = [
            [
                *(one.artifact, one.row, one.column),
                *(f"{one.published:.6g}", f"{one.ours:.6g}"),
                "no spread" if math.isnan(one.allowed) else f"{one.allowed:.2g}",
                "EXACT CELL FAILED" if one.fails else one.agreement,
            ]
            for one in odd
        ]
        table(header, lines, right=["published", "here", "allowed"])


def _print_claims(published: pd.DataFrame, ours: pd.DataFrame) -> list[str]:
    """Print each claim's two statuses; return the ids of those that held and now fail."""
    if published.empty:
        return []
    both = published.merge(ours, on="id", suffixes=("", "_here"))
    lost = both[(both["status"] == "held") & (both["status_here"] == "failed")]
    heading("Claims")
    rows = [[c.id, c.status, c.status_here, c.statement] for c in both.itertuples()]
    table(["claim", "published", "here", "statement"], rows)
    return list(lost["id"])
