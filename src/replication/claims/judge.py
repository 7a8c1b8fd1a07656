"""Judge a paper's checkable statements, which are relations over measured cells.

A claim is judged on what was measured here, never on what the paper prints. It is held or contrary
if the difference is larger than its 95 % interval, otherwise undecided; if its cells were not
measured, it is "not run". An empirical claim is "not tested" if a gate is closed
(`replication.claims.gates`), and a claim on times if they were measured on a CPU. A difference
without an interval decides a claim on an exact number or a construction, since nothing varies
there; it leaves an empirical claim, or one on times, undecided. A control is judged by the number
alone.

Where no effect exists, chance decides one claim in twenty. So an empirical claim is decided only if
its q-value, too, is below 5 %: its p-value, adjusted by Benjamini and Hochberg (1995) over the
tested empirical claims of its paper; claims on the same numbers are counted once.

The interval of a difference between two cells depends on their images:

- Each seed draws images of its own, as for most stand-ins: the cells are compared seed by seed.
  Student's interval of the differences covers the draw of weights, order and images. A single seed
  has no interval, since its images tell nothing about those that another seed would draw.
- The cells score the same images under equally many seeds: they are paired. The variance of the
  difference is that over seeds of its mean over images, plus that over images of its mean over
  seeds, each divided by the number of its means, with the degrees of freedom of Welch and
  Satterthwaite. The sum counts twice what is particular to one seed and one image. Images are taken
  as independent; if several come from one scan or photograph, the interval is too narrow.
- Other cells have Welch's interval over seeds alone, and a single run without scores has none.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from replication.claims.comparison import (
    CONFIDENCE,
    YES_NO,
    Uncertainty,
    difference_of_means,
    mean_of_pairs,
)
from replication.claims.decimals import decimals_by, format_number
from replication.claims.gates import closed, printed_effect
from replication.config.claims import EVERY_ROW, Claim, Key, Operand
from replication.config.recipe import short_hash
from replication.measures.packed_scores import unpack

if TYPE_CHECKING:
    from replication.config.paper import Printed
    from replication.config.tuning import TuningResult
    from replication.records.specs import Artifact, Cell

STATUSES = ("held", "contrary", "undecided", "not tested", "not run")
WORST_FIRST = ("not tested", "contrary", "undecided", "held")
COLUMNS = [
    *("id", "kind", "headline", "statement", "source", "status"),
    *("artifact", "metric", "unit"),
    *("left_name", "left", "relation", "right_name", "right", "margin", "half_width"),
    *("left_printed", "right_printed", "printed_effect"),
    *("seeds", "p", "q"),
    *("stand_in", "of_hardware", "registration", "evidence", "detail"),
]

ACCURACY = "top-1 accuracy"  # the metric by which searches choose learning rates, too
FEWEST_POINTS = 3  # smallest number of points for a rank correlation
MOST_ORDERED = 8  # largest number of points of which all orders are counted

COMMON = {"id", "kind", "headline", "statement", "source", "relation", "margin"}

Tables = Mapping[str, pd.DataFrame]
Measured = Mapping[Key, Mapping[Any, Any]]  # rows of the tidy cells, by artifact, row and column
TuningResults = Mapping[str, "TuningResult"]


class Side(NamedTuple):
    """One side of a relation: a measured number with its spread over seeds, or a constant.

    `scores` (seeds, images) are the scores of single images of `dataset`; a constant has a single
    0. `by_seed` are the numbers under each seed if each seed draws images of its own; otherwise it
    is empty. `key` is the cell's key; None for a constant. `number` identifies what was measured,
    so that claims on the same numbers are found: for trained models it is recipe, images and
    quantity (which several measurements may share); otherwise the measurement and the key of its
    value. `of` are the sides from which a correlation is computed.
    """

    value: float
    std: float
    n_seeds: int
    scores: np.ndarray | None = None
    dataset: str = ""
    number: str = ""
    by_seed: tuple[float, ...] = ()
    recipe_hash: str = ""
    printed: Printed | None = None
    unit: str = ""
    of: tuple[Side, ...] = ()
    metric: str = ""
    key: Key | None = None
    device: str = ""

    @property
    def models(self) -> tuple[str, ...]:
        """Return the hashes of the recipes of all models that were measured."""
        return tuple(side.recipe_hash for side in self.of or (self,) if side.recipe_hash)


def evaluate(
    claims: Sequence[Claim],
    tables: Tables,
    artifacts: Mapping[str, Artifact],
    tuning_results: TuningResults | None = None,
    registered: Mapping[str, str] | None = None,
    started: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Judge claims on tidy cells; return one row for each claim, with the columns `COLUMNS`.

    The row of a claim on every row has `left` and `right` of the row that decides. `stand_in` says
    that some cell is not the paper's own, `of_hardware` that some cell is a time or memory.
    `evidence` is equal for claims on the same numbers. `p` and `q` are known for empirical claims
    only.

    Args:
        claims: the claims of a paper.
        tables: the tidy cells, by artifact.
        artifacts: the artifacts, by name.
        tuning_results: what searches found, by the hash of the recipe; None if the scale searches
            nothing, and then no search closes a gate.
        registered: the registration times of claims that are unchanged since; None if none is
            registered.
        started: the times when the first training of each recipe began, by its hash. An empirical
            claim is ``confirmatory`` if it was registered before its trainings began, otherwise
            ``exploratory``.
    """
    measured, cells = _by_cell(tables), _declared(artifacts)
    fixed = frozenset(key for key in measured for claim in claims if _fixes(claim, key))
    judged = [
        {
            **_evaluate(claim, measured, cells, tuning_results, fixed),
            "registration": _registration(claim, measured, registered, started or {}),
        }
        for claim in claims
    ]
    return _counting_chance(pd.DataFrame(judged, columns=COLUMNS))


def _counting_chance(claims: pd.DataFrame) -> pd.DataFrame:
    """Fill `q`, and change to undecided the claims whose q-value is not below 5 %."""
    tested = claims["p"].where(claims["status"] != "not tested")
    distinct = tested.groupby(claims["evidence"]).max().dropna()
    if distinct.empty:
        return claims
    q = claims["evidence"].map(adjusted(distinct)).where(tested.notna())
    by_chance = (q >= 1 - CONFIDENCE) & claims["status"].isin(["held", "contrary"])
    told = claims["detail"] + [f" q = {known:.2g}." for known in q]
    return claims.assign(
        q=q,
        status=claims["status"].mask(by_chance, "undecided"),
        detail=claims["detail"].mask(by_chance, told),
    )


def adjusted(p: pd.Series) -> pd.Series:
    """Return the q-values of p-values: the false discovery rate of Benjamini and Hochberg (1995).

    Equal to scipy.stats.false_discovery_control, whose module takes a second to import.
    """
    falling = p.sort_values(ascending=False)
    return (falling * len(p) / np.arange(len(p), 0, -1)).cummin()


def _by_cell(tables: Tables) -> dict[Key, dict[Any, Any]]:
    return {
        (name, cell["row"], cell["column"]): cell
        for name, table in tables.items()
        for cell in table.to_dict("records")
    }


def _declared(artifacts: Mapping[str, Artifact]) -> dict[Key, Cell]:
    return {
        (name, cell.row, cell.column): cell
        for name, artifact in artifacts.items()
        for cell in artifact.cells
    }


def _evaluate(
    claim: Claim,
    measured: Measured,
    cells: Mapping[Key, Cell],
    tuning_results: TuningResults | None,
    fixed: frozenset[Key],
) -> dict[str, Any]:
    common = claim.model_dump(include=COMMON)
    sides = _sides(claim, measured, cells)
    found = {row: (left, right) for row, (left, right) in sides.items() if left and right}
    missing = [row for row in sides if row not in found]
    not_run = ", ".join(missing).removesuffix(".")  # a name may end in an abbreviation
    if not found:
        detail = f"Not run: {not_run or claim.operands[0].artifact}."
        unknown = {"stand_in": False, "of_hardware": False, "artifact": claim.left.artifact}
        return {**common, "status": "not run", "detail": detail, **unknown}
    gates = {row: _gate(claim, pair, tuning_results, fixed) for row, pair in found.items()}
    tested = {row: pair for row, pair in found.items() if not gates[row]} or found
    ranks = {
        row: (WORST_FIRST.index(_status(claim, *pair)), _slack(claim, *pair))
        for row, pair in tested.items()
    }
    worst = min(ranks, key=ranks.__getitem__)
    left, right = tested[worst]
    known = uncertainty(left, right)
    effect = printed_effect([side.printed for side in (left, right) if side.printed])
    decides = f"Of {len(tested)} rows, {worst} decides: " if _of_rows(claim) else ""
    left_out = f" Not run: {not_run}." if missing else ""
    left_out += _too_wide(claim, left, right) if not gates[worst] else ""
    left_out += _at_each_rate(left, right, tuning_results or {})
    left_out += _told_orders(claim, left)
    of_rows = {row: gate for row, gate in gates.items() if gate}
    if gates[worst]:
        left_out += f" Not tested: {gates[worst]}."
    elif of_rows:
        left_out += f" Not tested: {'; '.join(f'{row} ({gate})' for row, gate in of_rows.items())}."
    used = [
        cell
        for key, cell in cells.items()
        for operand in claim.operands
        if (known_as := operand.text(key)) is not None
        and (known_as in tested or not _of_rows(claim))
    ]
    return {
        **common,
        "status": "not tested" if gates[worst] else WORST_FIRST[ranks[worst][0]],
        "artifact": claim.left.artifact,
        "metric": left.metric,
        **dict(zip(("left_name", "right_name"), names_of(left, right), strict=True)),
        **dict(zip(("left_printed", "right_printed"), map(_printed, (left, right)), strict=True)),
        "left": left.value,
        "right": right.value,
        "unit": left.unit,
        "half_width": known.half_width if known else math.nan,
        "printed_effect": effect[0] if effect else math.nan,
        "seeds": min(side.n_seeds for side in (left, right) if side.number),
        "stand_in": any(not cell.comparable for cell in used),
        "of_hardware": any(cell.of_hardware for cell in used),
        "p": _p_value(claim, left, right),
        "evidence": short_hash([_numbers(pair) for pair in tested.values()]),
        "detail": f"{decides}{_told(left, right)}.{left_out}",
    }


def _registration(
    claim: Claim,
    measured: Measured,
    registered: Mapping[str, str] | None,
    started: Mapping[str, str],
) -> str:
    """Tell whether an empirical claim was registered before its trainings began.

    Returns "confirmatory" or "exploratory"; "" for other claims, or if nothing is registered.
    """
    if claim.kind != "empirical" or registered is None:
        return ""
    if (time := registered.get(claim.id)) is None:
        return "exploratory"
    hashes = {
        found["recipe_hash"]
        for key, found in measured.items()
        if any(operand.text(key) is not None for operand in claim.operands)
    }
    begun = (started.get(digest, "") for digest in hashes if digest)
    return "confirmatory" if all(time < start for start in begun) else "exploratory"


def _of_rows(claim: Claim) -> bool:
    """Tell whether the claim covers every row, of which the worst one decides."""
    return not claim.correlates_with and any(EVERY_ROW in operand.row for operand in claim.operands)


def _sides(
    claim: Claim, measured: Measured, cells: Mapping[Key, Cell]
) -> dict[str, tuple[Side | None, Side | None]]:
    """Return both sides by the row that the claim covers; a side is None if it was not run."""
    left, right = claim.left, claim.right
    if claim.correlates_with:
        correlation = _correlation((left, *claim.correlates_with), measured, cells)
        return {left.row: (correlation, _side(right, "", measured, cells))}
    every = [operand for operand in claim.operands if EVERY_ROW in operand.row]
    texts = _texts(every, measured) if every else [left.row]
    return {
        text: (_side(left, text, measured, cells), _side(right, text, measured, cells))
        for text in texts
    }


def _texts(operands: Sequence[Operand], measured: Measured) -> list[str]:
    """Return the texts for "*" for which each of the operands has a measured cell."""
    of_operands = [
        [text for key in measured if (text := operand.text(key)) is not None]
        for operand in operands
    ]
    return [text for text in of_operands[0] if all(text in texts for texts in of_operands)]


def _correlation(
    operands: Sequence[Operand], measured: Measured, cells: Mapping[Key, Cell]
) -> Side | None:
    """Return the rank correlation of the first operand with the second less the third.

    It is computed under each seed, over the texts of "*"; a seed is one repetition of everything,
    whether or not it draws the images. None if a cell was not run, if there are fewer than
    `FEWEST_POINTS` texts, or if the cells differ in their number of seeds.
    """
    texts = _texts(operands, measured)
    keys = [[operand.key(text) for operand in operands] for text in texts]
    sides = [
        side
        for text in texts
        for operand in operands
        if (side := _side(operand, text, measured, cells))
    ]
    numbers = [[_by_seed(measured[key]) for key in of_text] for of_text in keys]
    seeds = {len(of_cell) for of_text in numbers for of_cell in of_text}
    if len(keys) < FEWEST_POINTS or len(sides) < 3 * len(keys) or len(seeds) > 1:
        return None
    of, minuend, subtrahend = np.array(numbers).transpose(1, 2, 0)  # shape of each: (seeds, texts)
    by_seed = [_spearman(*pair) for pair in zip(of, minuend - subtrahend, strict=True)]
    return Side(
        float(np.mean(by_seed)),
        float(np.std(by_seed, ddof=1)) if len(by_seed) > 1 else math.nan,
        len(by_seed),
        number=" ".join(side.number for side in sides),
        by_seed=tuple(by_seed),
        of=tuple(sides),
        metric="rank correlation",
    )


def _by_seed(cell: Mapping[Any, Any]) -> list[float]:
    """Return the numbers of a cell under each seed; for a single run its one number."""
    return [float(part) for part in cell["by_seed"].split()] or [cell["measured"]]


def _spearman(left: np.ndarray, right: np.ndarray) -> float:
    """Return Spearman's rank correlation of two lists; 0 if one of them is constant."""
    known = pd.Series(left).corr(pd.Series(right), method="spearman")
    return 0.0 if math.isnan(known) else float(known)


def _side(
    operand: Operand | float, row: str, measured: Measured, cells: Mapping[Key, Cell]
) -> Side | None:
    """Return one side of a claim in a row; None if the cell was not run."""
    if not isinstance(operand, Operand):
        return Side(operand, std=0.0, n_seeds=1, scores=np.zeros((1, 1)))
    found = measured.get(operand.key(row))
    if found is None or math.isnan(found["measured"]):
        return None
    scores = unpack(found["by_image"]) if found["by_image"] else None
    shown = cells.get(operand.key(row))
    trained = (found["recipe_hash"], found["dataset"], found["metric"])
    untrained = (found["measurement"], shown.key if shown else "")
    number = " ".join(map(str, trained if found["recipe_hash"] else untrained))
    drawn = found["by_seed"].split() if found["drawn_by_seed"] == "yes" else ()
    return Side(
        found["measured"],
        found["std"],
        found["n_seeds"],
        scores,
        found["dataset"],
        number,
        tuple(map(float, drawn)),
        found["recipe_hash"] or "",
        shown.printed if shown else None,
        found["unit"],
        metric=found["metric"],
        key=operand.key(row),
        device=found["device"] or "",
    )


def _fixes(claim: Claim, key: Key) -> bool:
    """Tell whether a claim says that a cell has the same number for any weights."""
    number = claim.kind == "construction" and claim.relation == "equal"
    return number and isinstance(claim.right, float) and claim.left.text(key) is not None


def _gate(
    claim: Claim,
    sides: tuple[Side, Side],
    tuning_results: TuningResults | None,
    fixed: frozenset[Key],
) -> str:
    """Return why a claim on trained models, or on times, is not tested; "" if it is.

    How long a model was trained does not matter for its cells in `fixed`, whose numbers are the
    same for any weights.
    """
    if claim.kind == "timing" and any("cpu:" in side.device for side in sides):
        return "these are times of a CPU, and the paper's are those of a GPU"
    if claim.kind != "empirical":
        return ""
    if claim.untested:
        return claim.untested
    trained = [digest for side in sides if side.key not in fixed for digest in side.models]
    if tuning_results is None or not trained:
        return ""
    models = [tuning_results.get(digest) for digest in trained]
    return closed(claim, models, [side.printed for side in sides if side.printed])


def _too_wide(claim: Claim, left: Side, right: Side) -> str:
    """Return a remark if the half-width of the interval exceeds twice the printed effect; else "".

    Such a claim needs more seeds. Times and memory get no remark: the printed ones are of other
    hardware.
    """
    known = uncertainty(left, right)
    effect = printed_effect([side.printed for side in (left, right) if side.printed])
    if claim.kind == "timing" or claim.relation not in ("above", "below"):
        return ""
    if not known or effect is None or known.half_width <= 2 * abs(effect[0]):
        return ""
    return f" Too wide to see twice the printed effect, {effect[0]:+.3g}."


def _at_each_rate(left: Side, right: Side, tuning_results: TuningResults) -> str:
    """Return a remark on the difference in accuracy of two searched models at each learning rate.

    It names the searched models, from which the sides may differ. It is "" unless both sides are
    accuracies of models with different searches, each on the dataset of its side.
    """
    rates = {}
    for side in (left, right):
        model = tuning_results.get(side.recipe_hash)
        if model and model.dataset == side.dataset and side.metric == ACCURACY:
            rates[model.searched] = model.rates
    if len(rates) < 2:
        return ""
    ours, theirs = rates.values()
    gaps = [f"{ours[rate] - theirs[rate]:+.1f} at {rate:g}" for rate in ours if rate in theirs]
    searched = " less ".join(rates)
    return f" In the search, {searched} at equal rates, on held-out images: {', '.join(gaps)}."


def _numbers(sides: tuple[Side, Side]) -> list[Any]:
    """Return what two sides show, in an order that is the same for all claims on these numbers."""
    return sorted([side.number, side.value] for side in sides)


def _status(claim: Claim, left: Side, right: Side) -> str:
    slack, known = _slack(claim, left, right), uncertainty(left, right)
    if known is None and claim.kind in ("empirical", "timing"):
        return "undecided"
    half = known.half_width if known and claim.kind != "control" else 0.0
    rounding = 1e-9 * max(1.0, abs(right.value))
    inclusive = claim.relation in ("equal", "at least")
    if slack > half or (inclusive and slack >= half - rounding):
        return "held"
    return "contrary" if slack < -half or known is None else "undecided"


def _p_value(claim: Claim, left: Side, right: Side) -> float:
    """Return the p-value of an empirical claim's slack; NaN without an interval."""
    known = uncertainty(left, right) if claim.kind == "empirical" else None
    return known.p_value(_slack(claim, left, right)) if known else math.nan


def _slack(claim: Claim, left: Side, right: Side) -> float:
    return slack_of(claim.relation, left.value - right.value, claim.margin)


def slack_of(relation: str, difference: float, margin: float) -> float:
    """Return by how much a relation holds, in the unit of its sides; negative if it fails."""
    if relation == "equal":
        return margin - abs(difference)
    if relation == "at least":
        return margin + difference
    return (difference if relation == "above" else -difference) - margin


def told_claim(claim: Mapping[str, Any]) -> str:
    """Return in words what a judged claim asks of its left side, or of the difference of two."""
    relation, margin, unit = claim["relation"], claim["margin"], claim["unit"] or ""
    if claim["left"] is None or claim["right_name"]:  # not run, or of two cells
        of = "of " if relation == "equal" else ""
        return f"a difference {of}{told_relation(relation, margin)}{unit_of_difference(unit)}"
    return f"{told_relation(relation, margin, claim['right'])} {unit}".rstrip()


def told_relation(relation: str, margin: float, right: float = 0.0) -> str:
    """Return in words what a relation with its margin asks of a number compared with `right`."""
    return {
        "above": f"above {right + margin:zg}",
        "below": f"below {right - margin:zg}",
        "equal": f"{right:zg} to within {margin:zg}" if margin else f"{right:zg}",
        "at least": f"at least {right - margin:zg}",
    }[relation]


def names_of(left: Side, right: Side) -> tuple[str, str]:
    """Return the labels that differ between the sides: rows, columns or both; "" for a constant."""
    sides = (left.key, right.key)
    given = [key for key in sides if key]
    parts = [part for part in range(3) if len({key[part] for key in given}) > 1]
    parts = parts or ([1] if len(given) > 1 else [1, 2])
    first, second = (
        " · ".join(_label(key, part) for part in parts) if key else "" for key in sides
    )
    return first, second


def _label(key: Key, part: int) -> str:
    """Return a part of a cell's key; a bare number is preceded by the name of the part."""
    return (
        f"{('artifact', 'row', 'column')[part]} {key[part]}" if key[part].isdecimal() else key[part]
    )


def unit_of_difference(unit: str) -> str:
    """Return what follows the difference of two numbers of a unit: " points" for percent."""
    if unit in ("", YES_NO):
        return ""
    return " points" if unit == "%" else f" {unit}"


def _told(left: Side, right: Side) -> str:
    """Return the sentence on what was compared, with its unit, its interval and number of seeds."""
    difference, known = left.value - right.value, uncertainty(left, right)
    unit = f" {left.unit}" if left.unit and left.unit != YES_NO else ""
    points = unit_of_difference(left.unit)
    digits = decimals_by(known.half_width) if known else None
    sides = [
        f"{name} {format_number(side.value, digits)}{unit}".strip()
        for name, side in zip(names_of(left, right), (left, right), strict=True)
    ]
    text = f"{sides[0]}, {sides[1]}" if right.key else f"{sides[0]}, compared with {right.value:g}"
    sign = "+" if difference >= 0 else ""
    text = f"{text}; difference {sign}{format_number(difference, digits)}"
    text = f"{left.metric}: {text}" if left.metric else text
    seeds = dict.fromkeys(side.n_seeds for side in (left, right) if side.number)
    word = "seed" if left.models or right.models else "repetition"
    counted = f"{' and '.join(map(str, seeds))} {word}{'s' * (max(seeds) > 1)}"
    if known is None:
        return f"{text}{points}" + (f" ({counted})" if left.models else "")
    if known.half_width == 0 and max(seeds) > 1:
        return f"{text}{points} (the same in {counted})"
    drawn = seed_differences(left, right) is not None
    paired = None if drawn else image_differences(left, right)
    over = [f"{word}s"] * (paired is None or len(paired) > 1) + ["images"] * (paired is not None)
    half = format_number(known.half_width, digits)
    return f"{text} ± {half}{points} (95 % over {' and '.join(over)}, {counted})"


def _told_orders(claim: Claim, correlation: Side) -> str:
    """Return a remark on how many orders have as large a rank correlation; "" if it is none.

    The interval of a correlation is over seeds. It does not tell how often so few points have it by
    chance. There is no remark on many points, of which there are too many orders.
    """
    points = len(correlation.of) // 3
    if not correlation.of or claim.relation != "above" or points > MOST_ORDERED:
        return ""
    least = min(correlation.by_seed)
    share = f"{100 * share_of_orders(points, least):.1f} % of all orders of {points} points"
    return f" By chance, {share} correlate by {least:.2g}, the lowest of the seeds, or more."


@functools.cache
def share_of_orders(points: int, correlation: float) -> float:
    """Return the share of all orders of some points whose rank correlation is at least this."""
    places = range(points)
    squares = (
        sum((place - own) ** 2 for place, own in enumerate(order))
        for order in itertools.permutations(places)
    )
    most = (1 - correlation) * points * (points**2 - 1) / 6  # Spearman's 1 - 6 sum / (n (n^2 - 1))
    reached = [square <= most * (1 + 1e-9) for square in squares]
    return sum(reached) / len(reached)


def _printed(side: Side) -> float:
    """Return the number that the paper prints for a side; NaN if there is none."""
    value = side.printed.value if side.printed else math.nan
    return math.nan if isinstance(value, str) else value


def uncertainty(left: Side, right: Side) -> Uncertainty | None:
    """Return the uncertainty of the difference, by the module's rules; None if nothing is known.

    If each seed draws images of its own, it is that of the differences of the seeds. With scores of
    single images it is in points of percent, also for single runs. Otherwise, a single run is taken
    to have the spread of the other side, and a constant has none.
    """
    if (differences := seed_differences(left, right)) is not None:
        return mean_of_pairs(differences[:, None])
    if (paired := image_differences(left, right)) is not None:
        return mean_of_pairs(100 * paired)
    several, other = (left, right) if left.n_seeds > 1 else (right, left)
    if several.n_seeds < 2:
        return None
    if other.n_seeds < 2 and math.isnan(other.std):
        return difference_of_means(several.n_seeds, several.std, 1, None)
    return difference_of_means(several.n_seeds, several.std, max(other.n_seeds, 2), other.std)


def seed_differences(left: Side, right: Side) -> np.ndarray | None:
    """Return the differences (seeds,); None unless each seed draws images of its own.

    A constant on the right is the same under every seed. None, too, if there are fewer than two
    seeds, or if the sides differ in their number.
    """
    if not left.by_seed or len(left.by_seed) < 2:
        return None
    if not right.recipe_hash and not right.by_seed and right.n_seeds == 1:
        return np.array(left.by_seed) - right.value
    if len(right.by_seed) != len(left.by_seed):
        return None
    return np.array(left.by_seed) - np.array(right.by_seed)


def image_differences(left: Side, right: Side) -> np.ndarray | None:
    """Return the differences of scores (seeds, images); None if the sides score other images.

    None, too, if a side has no scores, or if the seeds draw images of their own
    (`seed_differences`).
    """
    if left.scores is None or right.scores is None or left.by_seed or right.by_seed:
        return None
    same = left.scores.shape == right.scores.shape and left.dataset == right.dataset
    constant = min(left.scores.size, right.scores.size) == 1
    return left.scores.astype(float) - right.scores if same or constant else None
