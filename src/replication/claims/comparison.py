"""Compare what was measured with what the paper prints, cell by cell.

A cell is judged only if its recipe and arguments are the paper's own: with a stand-in dataset, a
smaller model or a shorter schedule it is `not_comparable`, whatever its number. A deterministic
fact is `exact` if it rounds to the printed digits. Any other number is `within` if it differs from
the printed value by no more than rounding and the known spread explain (`tolerance`), otherwise
`outside`. If the measure is not defined for the model, the cell is `refused`, and the measure's
sentence is shown.

A paper may print one number that can be read in several ways: FLOPs with or without the softmax, a
layer with another invariant. A printed number has one verdict, in the cell of the reading that we
follow. If the number is outside there and exact in the cell of another reading (a variant), it is
`explained` by that variant.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri, stdtr, stdtrit  # scipy.stats has them, too, but loads slowly

from replication.measures.packed_scores import BY_IMAGE
from replication.records.nodes import MeasurementNode
from replication.records.records import AGAIN, Record, read_record
from vitrail.errors import REFUSED, VitrailError, did_you_mean, first_line

if TYPE_CHECKING:
    from replication.records.specs import Artifact, Cell

COLUMNS = [
    *("paper", "artifact", "row", "column", "metric", "unit"),
    *("measured", "std", "n_seeds", "ci_low", "ci_high"),
    *("paper_value", "paper_std", "difference", "verdict"),
    "explained_by",  # the variant's label if "explained", the measure's sentence if "refused"
    *("scale", "dataset", "device", "recipe_hash", "commit"),
    "measurement",  # the SHA-256 of the record of each seed, separated by spaces
    "source",
    "drawn_by_seed",  # "yes" if each seed was judged on images of its own
    "by_seed",  # the number under each seed that has one, separated by spaces
    "by_image",  # scores by `replication.measures.packed_scores`; empty if not known by image
]
NUMBERS = ["measured", "std", "ci_low", "ci_high", "paper_std", "difference"]
CONFIDENCE = 0.95
YES_NO = "yes/no"  # the unit of an answer, written as 1 or 0

Verdict = Literal[
    "exact", "within", "explained", "outside", "not_comparable", "not_run", "refused", "unprinted"
]
VERDICTS: Mapping[Verdict, str] = {
    "exact": "exact",
    "within": "within",
    "explained": "explained by a variant",
    "outside": "outside",
    "not_comparable": "not comparable",
    "not_run": "not run",
    "refused": "not defined",
    "unprinted": "not in the paper",
}
Measured = Mapping[Path, Mapping[str, Any]]


@dataclass(frozen=True)
class Summary:
    """Mean over seeds, sample standard deviation, and 95 % t interval of the mean.

    A field is None if nothing was measured, or if a single seed does not tell it.
    """

    measured: float | None = None
    std: float | None = None
    n_seeds: int = 0
    ci_low: float | None = None
    ci_high: float | None = None


def compare(artifact: Artifact, measurements: Measured) -> pd.DataFrame:
    """Return the tidy cells of an artifact, in its own order, with the columns `COLUMNS`.

    `measurements` maps the paths of records to their content, as `read_measurement` returns it.

    Raises:
        VitrailError: a measurement exists and lacks a cell's key, or has no number there.
    """
    rows = [_tidy_row(artifact, cell, measurements) for cell in artifact.cells]
    _explain(rows, artifact.cells)
    cells = pd.DataFrame(rows, columns=COLUMNS)
    cells = cells.assign(paper=artifact.paper, artifact=artifact.name, scale=artifact.scale)
    return cells.astype(dict.fromkeys(NUMBERS, float) | {"n_seeds": int})


def _explain(rows: Sequence[dict[str, Any]], cells: Sequence[Cell]) -> None:
    """Change the verdict of facts from outside to explained, if they are exact by a variant."""
    place_of = {(cell.row, cell.column): index for index, cell in enumerate(cells)}
    for variant, known in zip(cells, rows, strict=True):
        if variant.variant_of is None or known["measured"] is None:
            continue
        at = place_of[variant.variant_of]
        cell, row = cells[at], rows[at]
        here = judge(cell, Summary(known["measured"], n_seeds=1))
        if row["verdict"] == "outside" and here == "exact":
            named = [variant.row] * (variant.row != cell.row)
            named += [variant.column] * (variant.column != cell.column)
            row |= {"verdict": "explained", "explained_by": "; ".join(named)}


def read_measurement(path: Path) -> dict[str, Any] | None:
    """Read the record of a measurement, as `as_measured` returns it; None if there is none.

    Raises:
        VitrailError: the file is damaged, or is no record of a measurement.
    """
    record = read_record(path)
    return as_measured(record, path) if record else None


def as_measured(record: Record, path: Path) -> dict[str, Any]:
    """Return what is shown of a measurement: outcome, name, seed, datasets, and record's digest.

    Raises:
        VitrailError: it is no record of a measurement.
    """
    node = record.node
    if not isinstance(node, MeasurementNode):
        raise VitrailError(f"{path} is no record of a measurement; {AGAIN}")
    own = node.measurement
    return {
        **record.outcome,
        "name": own.name,
        "seed": own.seed,
        "recipe_hash": own.on.recipe.hash if own.on else None,
        "dataset": ", ".join(own.measured_on) or None,
        "sha256": record.sha256,
    }


def gather_seeds(records: Iterable[Path], measurements: Measured) -> dict[str, Any] | None:
    """Return what is shown of a measurement under all seeds that were taken; None if none was.

    ``values`` are by seed; commits, devices and digests of several seeds are joined in one text.
    """
    found = [measurements[path] for path in records if path in measurements]
    if not found:
        return None
    origins = [each.get("provenance", {}) for each in found]

    def each_once(name: str, separator: str) -> str:
        return separator.join(dict.fromkeys(filter(None, (own.get(name) for own in origins))))

    return {
        **{name: found[0].get(name) for name in ("name", "recipe_hash", "dataset")},
        "values": {str(each["seed"]): each["values"] for each in found},
        "drawn_by_seed": all(each.get("drawn_by_seed") for each in found),
        "device": each_once("device", ", ") or None,
        "commit": each_once("commit", "+") or None,
        "sha256": " ".join(each["sha256"] for each in found),
    }


def read_cells(path: Path) -> pd.DataFrame:
    """Read tidy cells back from their CSV; a word such as "none" stays a word.

    Raises:
        VitrailError: the file is missing or damaged, or its header is not `COLUMNS`.
    """
    try:
        cells = pd.read_csv(path, dtype=str, keep_default_na=False)
        if list(cells.columns) != COLUMNS:
            raise ValueError("it has not the columns of results")
        numbers = cells[NUMBERS].apply(pd.to_numeric)
        return cells.assign(**numbers, n_seeds=cells["n_seeds"].astype(int))
    except (OSError, ValueError) as error:  # pandas' own errors of parsing are ValueErrors
        raise VitrailError(
            f"cannot read {path} ({first_line(error)}); delete it and start snakemake again, or, "
            "if it is published, restore it by git"
        ) from None


def summarize(values: Sequence[float]) -> Summary:
    """Summarise one number over seeds; a single seed has neither a spread nor an interval."""
    n = len(values)
    if n < 2:
        return Summary(values[0], n_seeds=1) if n else Summary()
    mean = statistics.fmean(values)
    std = statistics.stdev(values)  # exact: 0 for equal values, for which numpy gives about 1e-17
    half = t_quantile(n - 1) * std / math.sqrt(n)
    return Summary(mean, std, n, mean - half, mean + half)


def tolerance(n_seeds: int, std: float | None, paper_std: float | None, decimals: int) -> float:
    """Return the largest difference from the printed value that still counts as the same result.

    It is half the 95 % interval of the difference if both numbers came from one distribution, plus
    half a unit of the last printed digit, since the printed value is rounded. Papers seldom print
    how many runs they averaged; in doubt, the narrower interval is taken:

    - several seeds, a printed std: Welch's interval of two means of as many runs as ours.
    - several seeds, no printed std: the printed value is one more run with our spread.
    - one seed, a printed std: ours is one run about the printed mean: ``1.96 * paper_std``.
    - one seed, no printed std: the spread is unknown, so the last digit may differ by one unit.
    """
    half_unit = 0.5 * 10.0**-decimals
    if n_seeds > 1 and std is not None:
        return difference_of_means(n_seeds, std, n_seeds, paper_std).half_width + half_unit
    if paper_std is not None:
        return float(ndtri((1 + CONFIDENCE) / 2)) * paper_std + half_unit
    return 2 * half_unit


class Uncertainty(NamedTuple):
    """The variance of an estimated difference, with the degrees of freedom of this variance."""

    variance: float
    freedom: float

    @property
    def half_width(self) -> float:
        """Return half the width of the difference's 95 % interval."""
        return t_quantile(self.freedom) * math.sqrt(self.variance) if self.variance else 0.0

    def p_value(self, difference: float) -> float:
        """Return the two-sided p-value of a difference: of one as large if the true one is 0."""
        if not self.variance:
            return float(difference == 0)
        return float(2 * stdtr(self.freedom, -abs(difference) / math.sqrt(self.variance)))


def difference_of_means(
    n_left: int, std_left: float, n_right: int, std_right: float | None
) -> Uncertainty:
    """Return the uncertainty of the difference of two means (Welch).

    If `std_right` is None, the right side is a single value with the spread of the left side.
    """
    if std_right is None:
        return Uncertainty(std_left**2 * (1 + 1 / n_left), n_left - 1)
    return _sum((std_left**2 / n_left, n_left - 1), (std_right**2 / n_right, n_right - 1))


def mean_of_pairs(differences: np.ndarray) -> Uncertainty:
    """Return the uncertainty of the mean of differences (seeds, images): see `claims.judge`.

    For a single seed it covers the spread over images alone.
    """
    means = [differences.mean(axis=axis) for axis in (0, 1)]  # means by image, means by seed
    return _sum(*((m.var(ddof=1) / len(m), len(m) - 1) for m in means if len(m) > 1))


def _sum(*parts: tuple[float, int]) -> Uncertainty:
    """Sum variances, each with its degrees of freedom, by Satterthwaite's formula."""
    if not (variance := sum(part for part, _ in parts)):
        return Uncertainty(0.0, 1.0)
    freedom = variance**2 / sum(part**2 / own for part, own in parts)
    return Uncertainty(variance, freedom)


def t_quantile(freedom: float) -> float:
    """Return the two-sided 95 % quantile of Student's t."""
    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))


def decimals_of(value: float) -> int:
    """Return the decimals of a number's shortest text: 93.6 has 1, 22050664.0 none, 2.5e-4 five."""
    mantissa, _, power = repr(float(value)).partition("e")
    fraction = mantissa.partition(".")[2].rstrip("0")
    return max(0, len(fraction) - int(power or 0))


def rounding_of(cell: Cell, value: float) -> float:
    """Return half a unit of a cell's last digit, by its `digits` or by `value`; 0 for yes or no."""
    return 0.0 if cell.unit == YES_NO else 0.5 * 10.0 ** -_decimals(cell, value)


def _decimals(cell: Cell, value: float) -> int:
    return decimals_of(value) if cell.digits is None else cell.digits


def judge(cell: Cell, summary: Summary) -> Verdict:
    """Return the verdict on one cell, by the rules in the module's docstring."""
    if summary.measured is None:
        return "not_run"
    if cell.printed is None:
        return "unprinted"
    printed = cell.printed.value
    if isinstance(printed, str) or not cell.comparable:
        return "not_comparable"
    if cell.exact:
        allowed = rounding_of(cell, printed)
    else:
        decimals = _decimals(cell, printed)
        allowed = tolerance(summary.n_seeds, summary.std, cell.printed.std, decimals)
    slack = 1 + 1e-9  # 0.25 may be printed as 0.2 or as 0.3: both count as rounded correctly
    if abs(summary.measured - printed) > allowed * slack:
        return "outside"
    return "exact" if cell.exact else "within"


def _tidy_row(artifact: Artifact, cell: Cell, measurements: Measured) -> dict[str, Any]:
    """Return a cell's row of the CSV, without the columns that all rows of an artifact share."""
    known = gather_seeds(cell.records, measurements)
    numbers = numbers_of(artifact, cell, known) if known else []
    summary = summarize(numbers)
    row = {name: getattr(cell, name) for name in ("row", "column", "metric", "unit")}
    row |= {"by_seed": " ".join(map(repr, numbers)), "explained_by": ""}
    row |= {"verdict": judge(cell, summary), **asdict(summary)}
    if known:
        row |= {name: known[name] for name in ("dataset", "recipe_hash", "device", "commit")}
        scores = [values.get(cell.key + BY_IMAGE) for values in known["values"].values()]
        row["by_image"] = (
            " ".join(scores) if all(isinstance(score, str) for score in scores) else ""
        )
        row["measurement"] = known["sha256"]
        row["drawn_by_seed"] = "yes" if known["drawn_by_seed"] else ""
        if summary.measured is None and (why := _refusals(cell, known)):
            row |= {"verdict": "refused", "explained_by": " ".join(why)}
    if cell.printed:
        value = cell.printed.value
        row |= {"paper_value": value, "paper_std": cell.printed.std}
        row["source"] = cell.printed.source
        if summary.measured is not None and not isinstance(value, str):
            row["difference"] = summary.measured - value
    return row


def _refusals(cell: Cell, known: Mapping[str, Any]) -> list[str]:
    """Return the sentences by which a measure says that it is not defined for the model."""
    found = (values.get(cell.key + REFUSED) for values in known["values"].values())
    return [*dict.fromkeys(filter(None, found))]


def numbers_of(artifact: Artifact, cell: Cell, known: Mapping[str, Any]) -> list[float]:
    """Return the number of a cell under each seed that has one.

    Raises:
        VitrailError: the measurement lacks the cell's key, or holds no number there.
    """
    place = f"{artifact.paper} {artifact.name}, cell ({cell.row}, {cell.column})"
    of_seeds = known["values"].values()
    for values in of_seeds:
        if cell.key not in values:
            raise VitrailError(
                f"{place}: the measurement '{known['name']}' has no value '{cell.key}'"
                f"{did_you_mean(cell.key, values)}"
            )
        if isinstance(value := values[cell.key], list | str | dict):
            held = "an array" if isinstance(value, list) else f"of type {type(value).__name__}"
            raise VitrailError(
                f"{place}: '{cell.key}' of the measurement '{known['name']}' is {held}; "
                "name a key that holds one number"
            )
    numbers = [values[cell.key] for values in of_seeds]
    # Null, or NaN, which some writers use for it, means that the number was not measured.
    return [float(number) for number in numbers if number is not None and not math.isnan(number)]
