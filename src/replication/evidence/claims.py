"""A paper's checkable statements as relations over measured cells, and what became of each.

A claim is judged on what was measured here, never on what was printed. It is held or contrary if
the difference is larger than its 95 % interval, else undecided; without its cells it is "not run".

Cells that score the same images under as many seeds are paired: the variance of the difference is
that over seeds of its mean over images, plus that over images of its mean over seeds, each by the
number of its means, with the degrees of freedom of Welch and Satterthwaite. The sum counts what is
particular to one seed and one image twice. Images are taken as independent; where several are
composed of one scan or photograph the interval is too narrow. Other cells have Welch's interval
over seeds alone, and a single run without scores knows none, so there the sign decides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from replication.evidence.comparison import difference_half_width, paired_half_width
from replication.plan.claims import EVERY_ROW, Claim, Key, Place
from replication.plan.recipe import short_hash
from vitrail.scores import unpack

if TYPE_CHECKING:
    from replication.plan.nodes import RenderingNode, ShownCell

STATUSES = ("held", "contrary", "undecided", "not run")
WORST_FIRST = ("contrary", "undecided", "held")
COLUMNS = [
    *("id", "statement", "source", "status", "left", "right", "margin"),
    *("stand_in", "of_hardware", "evidence", "detail"),
]

Tables = Mapping[str, pd.DataFrame]
Measured = Mapping[Key, Mapping[Any, Any]]  # the tidy cells


class Side(NamedTuple):
    """One side of a relation: a measured number with its spread over seeds, or a constant.

    `scores`, (seeds, images), are those of the images of `dataset`; a constant has a single 0.
    """

    value: float
    std: float
    n_seeds: int
    scores: np.ndarray | None = None
    dataset: str = ""


def evaluate(
    claims: Sequence[Claim], tables: Tables, artifacts: Mapping[str, RenderingNode]
) -> pd.DataFrame:
    """Judge claims on tidy cells, by artifact; one row for each claim, columns `COLUMNS`.

    Of a claim on every row, `left` and `right` are those of the row that decides. `stand_in` says
    that a cell is not the paper's own, `of_hardware` that one is a time or memory; `evidence` is
    the same for claims on the same numbers.
    """
    measured = {
        (name, cell["row"], cell["column"]): cell
        for name, table in tables.items()
        for cell in table.to_dict("records")
    }
    cells = {
        (name, cell.row, cell.column): cell
        for name, artifact in artifacts.items()
        for cell in artifact.cells
    }
    return pd.DataFrame([_evaluate(claim, measured, cells) for claim in claims], columns=COLUMNS)


def _evaluate(claim: Claim, measured: Measured, cells: Mapping[Key, ShownCell]) -> dict[str, Any]:
    common = claim.model_dump(include={"id", "statement", "source", "margin"})
    places = (claim.left, claim.right)
    sides = {
        row: [_side(place, row, measured) for place in places] for row in _rows(claim, measured)
    }
    tested = {row: (left, right) for row, (left, right) in sides.items() if left and right}
    missing = [row for row in sides if row not in tested]
    if not tested:
        detail = f"Not run: {', '.join(missing) or claim.left.artifact}."
        flags = {"stand_in": False, "of_hardware": False}
        return {**common, "status": "not run", "detail": detail, **flags}
    ranks = {
        row: (WORST_FIRST.index(_status(claim, *pair)), _slack(claim, *pair))
        for row, pair in tested.items()
    }
    worst = min(ranks, key=ranks.__getitem__)
    left, right = tested[worst]
    text = _difference(left, right)
    decides = f"Of {len(tested)} rows, {worst} decides: " if claim.left.row == EVERY_ROW else ""
    left_out = f" Not run: {', '.join(missing)}." if missing else ""
    used = [
        cells.get(place.key(row)) if isinstance(place, Place) else place
        for row in tested
        for place in places
    ]
    return {
        **common,
        "status": WORST_FIRST[ranks[worst][0]],
        "left": left.value,
        "right": right.value,
        "stand_in": any(not getattr(cell, "comparable", True) for cell in used),
        "of_hardware": any(getattr(cell, "of_hardware", False) for cell in used),
        "evidence": short_hash([claim.relation, claim.margin, *map(_evidence, used)]),
        "detail": f"{decides}{text}.{left_out}",
    }


def _rows(claim: Claim, measured: Measured) -> list[str]:
    """The rows that the claim speaks of; of "*" those that the columns of both sides have."""
    labels = [
        [row for name, row, column in measured if (name, column) == (place.artifact, place.column)]
        for place in (claim.left, claim.right)
        if isinstance(place, Place) and place.row == EVERY_ROW
    ]
    rows = labels[0] if labels else [claim.left.row]
    return [row for row in rows if all(row in of_side for of_side in labels)]


def _side(place: Place | float, row: str, measured: Measured) -> Side | None:
    """One side of a claim in a row; None where the cell was not run."""
    if not isinstance(place, Place):
        return Side(place, std=0.0, n_seeds=1, scores=np.zeros((1, 1)))
    cell = measured.get(place.key(row))
    if cell is None or math.isnan(cell["measured"]):
        return None
    scores = unpack(cell["by_image"]) if cell["by_image"] else None
    return Side(cell["measured"], cell["std"], cell["n_seeds"], scores, cell["dataset"])


def _evidence(cell: Any) -> Any:
    """What a cell or a constant shows, the same for every cell that shows it."""
    measurement = getattr(cell, "measurement", None)
    return [str(measurement), cell.key] if measurement else cell


def _status(claim: Claim, left: Side, right: Side) -> str:
    slack, known = _slack(claim, left, right), half_width(left, right)
    half = known or 0.0
    rounding = 1e-9 * max(1.0, abs(right.value))
    inclusive = claim.relation in ("equal", "at least")
    if slack > half or (inclusive and slack >= half - rounding):
        return "held"
    return "contrary" if slack < -half or known is None else "undecided"


def _slack(claim: Claim, left: Side, right: Side) -> float:
    """How far the relation is from failing; negative when it fails."""
    difference = left.value - right.value
    if claim.relation == "equal":
        return claim.margin - abs(difference)
    if claim.relation == "at least":
        return claim.margin + difference
    return (difference if claim.relation == "above" else -difference) - claim.margin


def _difference(left: Side, right: Side) -> str:
    """What was compared, and how sure seeds and images make the difference."""
    difference = left.value - right.value
    text = f"{left.value:.6g} against {right.value:.6g}, a difference of {difference:+.3g}"
    if (half := half_width(left, right)) is None:
        return text
    paired = image_differences(left, right)
    over = ["seeds"] * (paired is None or len(paired) > 1) + ["images"] * (paired is not None)
    return f"{text} ± {half:.2g} (95 % over {' and '.join(over)})"


def half_width(left: Side, right: Side) -> float | None:
    """Half the 95 % interval of the difference, as the module explains it; None if unknown.

    With scores by image it is in points of percent, also of single runs. Without, a single run
    shares the other side's spread, and a constant has none.
    """
    if (paired := image_differences(left, right)) is not None:
        return 100 * paired_half_width(paired)
    several, other = (left, right) if left.n_seeds > 1 else (right, left)
    if several.n_seeds < 2:
        return None
    if other.n_seeds < 2 and math.isnan(other.std):
        return difference_half_width(several.n_seeds, several.std, 1, None)
    return difference_half_width(several.n_seeds, several.std, max(other.n_seeds, 2), other.std)


def image_differences(left: Side, right: Side) -> np.ndarray | None:
    """The differences of scores (seeds, images); None if not both sides score the same images."""
    if left.scores is None or right.scores is None:
        return None
    same = left.scores.shape == right.scores.shape and left.dataset == right.dataset
    constant = min(left.scores.size, right.scores.size) == 1
    return left.scores.astype(float) - right.scores if same or constant else None
