"""A paper's checkable statements as relations over measured cells: held, failed or not testable.

A claim is tested on what was measured here, never on what was printed. It is "not testable" at a
scale that it does not list, and where a cell that it needs was not run.
"""

from __future__ import annotations

import itertools
import math
from collections import ChainMap, Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pandas as pd
from pydantic import Field

from vitrine.artifacts.comparison import difference_half_width
from vitrine.errors import VitrineError, did_you_mean
from vitrine.plan.paper import fill
from vitrine.plan.schema import Strict, parse, read_yaml
from vitrine.plan.settings import known_scales

if TYPE_CHECKING:
    from vitrine.plan.catalog import Artifact, Paper

EVERY_ROW = "*"
COLUMNS = ["id", "statement", "source", "status", "left", "right", "margin", "detail"]

Tables = Mapping[str, pd.DataFrame]


class Place(Strict):
    """A cell; the row "*" stands for every row that both sides have."""

    artifact: str
    row: str
    column: str


class Claim(Strict):
    """One statement of a paper: `left` is above, below, equal to or at least `right`.

    `above` and `below` ask for more than `margin` between them, `equal` allows up to it, and
    `at least` ("matches or improves") lets `left` be lower by up to it.
    """

    id: str
    statement: str = Field(description="the paper's own words, in short")
    source: str = Field(description="where the paper says it")
    left: Place
    relation: Literal["above", "below", "equal", "at least"]
    right: Place | float
    margin: float = Field(0.0, ge=0)
    scales: tuple[str, ...]


class ClaimsFile(Strict):
    """``claims.yaml``: a list of claims, before `expand`."""

    claims: tuple[dict[str, Any], ...]


class Choices(Strict):
    """The lists that an entry of ``claims.yaml`` runs through."""

    each: tuple[tuple[dict[str, str], ...], ...] = ()


class Side(NamedTuple):
    """One side of a relation: a measured number with its spread over seeds, or a constant."""

    value: float
    std: float
    n_seeds: int


def read_claims(path: Path) -> tuple[Claim, ...]:
    """Read a paper's claims; none if the paper has no such file.

    An entry with ``each: [choices, ...]`` stands for a claim for each combination of one choice of
    every list: a choice is a mapping of names, which fill ``{name}`` in the entry's strings.

    Raises:
        VitrineError: the file is not a list of claims, or two have one id.
    """
    if not path.is_file():
        return ()
    entries = parse(ClaimsFile, {"claims": read_yaml(path) or []}, str(path)).claims
    claims = tuple(
        parse(Claim, claim, f"{path}, '{claim.get('id')}'")
        for entry in entries
        for claim in expand(entry, str(path))
    )
    for name, times in Counter(claim.id for claim in claims).items():
        if times > 1:
            raise VitrineError(f"{path}: two claims are called '{name}'; rename one")
    return claims


def expand(entry: Mapping[str, Any], where: str) -> Iterator[dict[str, Any]]:
    """Yield the claims that an entry stands for, without ``each`` and with every name filled in.

    Raises:
        VitrineError: a string has a ``{name}`` that no choice gives, or ``each`` is not lists of
            choices.
    """
    where = f"{where}, '{entry.get('id')}'"
    claim = {name: value for name, value in entry.items() if name != "each"}
    lists = parse(Choices, {"each": entry.get("each", ())}, where).each
    for choices in itertools.product(*lists):
        yield filled(claim, dict(ChainMap(*choices)), where)


def filled(value: Any, names: Mapping[str, str], where: str) -> Any:
    """Fill ``{name}`` in every string of nested data."""
    if isinstance(value, str):
        return fill(value, names, where)
    if isinstance(value, Mapping):
        return {key: filled(own, names, where) for key, own in value.items()}
    return value


def claims_of_paper(paper: Paper, tables: Tables, scale: str) -> pd.DataFrame:
    """Judge a paper's claims, built or not: their cells must exist wherever their artifact does.

    Raises:
        VitrineError: as `read_claims`, `refuse_unknown` and `evaluate` do.
    """
    claims = read_claims(paper.folder / "claims.yaml")
    refuse_unknown(claims, paper.artifacts, known_scales(paper.folder.parents[2]))
    return evaluate(claims, tables, scale)


def refuse_unknown(
    claims: Sequence[Claim], artifacts: Mapping[str, Artifact], scales: Iterable[str]
) -> None:
    """Refuse scales, rows and columns that there are not, lest their claim be never testable.

    Raises:
        VitrineError: a claim names such a scale, row or column.
    """
    for claim in claims:
        named = [(scale, {*scales}, f"scale '{scale}' is unknown") for scale in claim.scales]
        for place in (claim.left, claim.right):
            if isinstance(place, Place) and place.artifact in artifacts:
                cells, lacks = artifacts[place.artifact].cells, f"{place.artifact} has no"
                rows, columns = {cell.row for cell in cells}, {cell.column for cell in cells}
                named.append((place.row, {*rows, EVERY_ROW}, f"{lacks} row '{place.row}'"))
                named.append((place.column, columns, f"{lacks} column '{place.column}'"))
        for label, known, fault in named:
            if label not in known:
                raise VitrineError(f"claim '{claim.id}': {fault}{did_you_mean(label, known)}")


def evaluate(claims: Sequence[Claim], tables: Tables, scale: str) -> pd.DataFrame:
    """Test claims on a paper's tidy cells, by artifact; one row for each, columns `COLUMNS`.

    Of a claim on every row, `left` and `right` are those of the row that comes closest to failing.

    Raises:
        VitrineError: a claim that is testable here names an artifact that is not there.
    """
    return pd.DataFrame([_evaluate(claim, tables, scale) for claim in claims], columns=COLUMNS)


def _evaluate(claim: Claim, tables: Tables, scale: str) -> dict[str, Any]:
    common = claim.model_dump(include={"id", "statement", "source", "margin"})
    common["status"] = "not testable"
    if scale not in claim.scales:
        where = ", ".join(claim.scales)
        return {**common, "detail": f"Testable at {where}, not at {scale}."}
    pairs = _pairs(claim, tables)
    tested = {row: (left, right) for row, (left, right) in pairs.items() if left and right}
    missing = [row for row in pairs if row not in tested]
    if not tested:
        return {**common, "detail": f"Not run: {', '.join(missing) or claim.left.artifact}."}
    worst = min(tested, key=lambda row: _slack(claim, *tested[row]))
    left, right = tested[worst]
    return {
        **common,
        "status": "held" if _holds(claim, left, right) else "failed",
        "left": left.value,
        "right": right.value,
        "detail": _detail(claim, worst, left, right, len(tested), missing),
    }


def _pairs(claim: Claim, tables: Tables) -> dict[str, tuple[Side | None, Side | None]]:
    """The two sides of each row that the claim speaks of; None where a cell was not run."""
    places = [place for place in (claim.left, claim.right) if isinstance(place, Place)]
    labels = [_rows(claim, place, tables) for place in places if place.row == EVERY_ROW]
    return {
        row: (_side(claim, claim.left, row, tables), _side(claim, claim.right, row, tables))
        for row in (labels[0] if labels else [claim.left.row])
        if all(row in rows for rows in labels)
    }


def _rows(claim: Claim, place: Place, tables: Tables) -> list[str]:
    """The rows that a place's column has, in the artifact's order."""
    cells = _table(claim, place, tables)
    return list(dict.fromkeys(cells.loc[cells["column"] == place.column, "row"]))


def _side(claim: Claim, place: Place | float, row: str, tables: Tables) -> Side | None:
    if not isinstance(place, Place):
        return Side(place, std=0.0, n_seeds=1)
    cells = _table(claim, place, tables)
    row = row if place.row == EVERY_ROW else place.row
    found = cells[(cells["row"] == row) & (cells["column"] == place.column)]
    if found.empty or math.isnan(found["measured"].iloc[0]):
        return None
    cell = found.iloc[0]
    return Side(float(cell["measured"]), float(cell["std"]), int(cell["n_seeds"]))


def _table(claim: Claim, place: Place, tables: Tables) -> pd.DataFrame:
    """The cells of a place's artifact, none where it is not built."""
    if place.artifact not in tables:
        raise VitrineError(
            f"claim '{claim.id}': no artifact of this scale is called '{place.artifact}'"
            f"{did_you_mean(place.artifact, tables)}"
        )
    return tables[place.artifact]


def _slack(claim: Claim, left: Side, right: Side) -> float:
    """How far the relation is from failing; negative when it fails."""
    difference = left.value - right.value
    if claim.relation == "equal":
        return claim.margin - abs(difference)
    if claim.relation == "at least":
        return claim.margin + difference
    return (difference if claim.relation == "above" else -difference) - claim.margin


def _holds(claim: Claim, left: Side, right: Side) -> bool:
    slack = _slack(claim, left, right)
    if claim.relation in ("equal", "at least"):
        return slack >= -1e-9 * max(1.0, abs(right.value))
    return slack > 0


def _detail(
    claim: Claim, row: str, left: Side, right: Side, tested: int, missing: Sequence[str]
) -> str:
    """What was compared, how sure the seeds make it, and what was left out, in sentences."""
    difference = left.value - right.value
    text = f"{left.value:.6g} against {right.value:.6g}, a difference of {difference:+.3g}"
    half = _seeds_half_width(left, right)
    if half is not None:
        text += f" ± {half:.2g} (95 % over seeds)"
        if claim.relation != "equal" and abs(difference) < half:
            text += ", less than the spread over seeds"
    if claim.left.row == EVERY_ROW:
        text = f"closest of {tested} rows, {row}: {text}"
    sentences = [text[0].upper() + text[1:], *([f"Not run: {', '.join(missing)}"] * bool(missing))]
    return ". ".join(sentences) + "."


def _seeds_half_width(left: Side, right: Side) -> float | None:
    """Half the 95 % interval of the difference; None where a measured side has one seed only."""
    if left.n_seeds < 2 or (right.n_seeds < 2 and right.std != 0):
        return None
    return difference_half_width(left.n_seeds, left.std, max(right.n_seeds, 2), right.std)
