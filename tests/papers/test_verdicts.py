"""A second judge of the published claims: it reads CSVs and ``claims.yaml``, and none of our code.

The rules are restated from docs/results.md with pandas and SciPy: gates, intervals, q-values.
"""

import itertools
import math
from fnmatch import fnmatch

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import yaml

from replication.measures.packed_scores import unpack
from tests.conftest import ROOT

SCALES = sorted(path.parent.name for path in ROOT.glob("results/published/*/claims.csv"))

PUBLISHED = [
    (scale, path.parent.name)
    for path in sorted(ROOT.glob("configs/papers/*/claims.yaml"))
    for scale in SCALES
    if any((ROOT / "results" / "published" / scale / path.parent.name).glob("*.csv"))
]


class Paper:
    """One paper's published cells and claims at a scale."""

    def __init__(self, scale, name):
        self.folder = ROOT / "results" / "published" / scale
        frames = []
        for file in sorted((self.folder / name).glob("*.csv")):
            if file.name != "training_logs.csv":
                frames.append(pd.read_csv(file, keep_default_na=False, dtype=str))
        table = pd.concat(frames)
        self.cells = {
            (cell["artifact"], cell["row"], cell["column"]): cell
            for cell in table.to_dict("records")
        }
        models = pd.read_csv(self.folder / "models.csv", dtype={"recipe_hash": str})
        models = models[models["paper"] == name]
        self.models = models.set_index("recipe_hash").to_dict("index")
        judged = pd.read_csv(self.folder / "claims.csv", keep_default_na=False)
        self.published = judged[judged["paper"] == name].set_index("id")
        written = yaml.safe_load((ROOT / f"configs/papers/{name}/claims.yaml").read_text())
        self.claims = [claim for entry in written for claim in expanded(entry)]
        self.fixed = {  # cells that have the same number for any weights
            tuple(claim["left"][name] for name in ("artifact", "row", "column"))
            for claim in self.claims
            if claim.get("kind") == "construction"
            and claim["relation"] == "equal"
            and not isinstance(claim["right"], dict)
        }
        changed = yaml.safe_load((ROOT / f"configs/papers/{name}/scales/{scale}.yaml").read_text())
        self.untested = [
            pattern for patterns in changed.get("untested", {}) for pattern in patterns.split(", ")
        ]


def expanded(entry):
    """Every claim of an entry: one for each combination of its choices."""
    template = {key: value for key, value in entry.items() if key != "each"}
    for choices in itertools.product(*entry.get("each", [])):
        names = {key: value for choice in reversed(choices) for key, value in choice.items()}
        yield filled(template, names)


def filled(value, names):
    if isinstance(value, dict):
        return {key: filled(part, names) for key, part in value.items()}
    return value.format_map(names) if isinstance(value, str) else value


class Number:
    """One side of a claim in a row."""

    def __init__(self, side, row, paper):
        self.constant = not isinstance(side, dict)
        self.place = None
        if self.constant:
            self.value, self.std, self.seeds, self.cell = float(side), 0.0, 1, None
            return
        self.place = side["artifact"], row if side["row"] == "*" else side["row"], side["column"]
        self.cell = paper.cells.get(self.place)
        self.value = number(self.cell, "measured")
        self.std, self.seeds = (
            number(self.cell, "std"),
            int(self.cell["n_seeds"] if self.cell else 0),
        )

    @property
    def cells(self):
        return [self.cell] if self.cell is not None else []

    @property
    def by_seed(self):
        drawn = self.cell is not None and self.cell["drawn_by_seed"] == "yes"
        return [float(part) for part in self.cell["by_seed"].split()] if drawn else []

    @property
    def by_image(self):
        if self.constant:
            return np.zeros((1, 1))
        return unpack(self.cell["by_image"]).astype(float) if self.cell["by_image"] else None

    @property
    def printed(self):
        """The printed number and its spread; None where there is none."""
        text = "" if self.cell is None else self.cell["paper_value"]
        try:
            return float(text), number(self.cell, "paper_std")
        except ValueError:
            return None


class Correlation:
    """The left side of a claim that is about a rank correlation, from the cells by seed."""

    constant, place, by_image, printed = False, None, None, None

    def __init__(self, claim, paper):
        operands = [claim["left"], *claim["correlates_with"]]
        columns = []
        for operand in operands:
            before, after = operand["row"].split("*")
            columns.append(
                {
                    row.removeprefix(before).removesuffix(after): cell
                    for (artifact, row, column), cell in paper.cells.items()
                    if (artifact, column) == (operand["artifact"], operand["column"])
                    and row.startswith(before)
                    and row.endswith(after)
                }
            )
        texts = [text for text in columns[0] if all(text in column for column in columns)]
        self.cells = [column[text] for column in columns for text in texts]
        by_cell = [
            [[float(part) for part in column[text]["by_seed"].split()] for text in texts]
            for column in columns
        ]
        if len({len(seeds) for cells in by_cell for seeds in cells}) > 1:
            self.value, self.seeds, self.by_seed = math.nan, 0, []  # no seed has all numbers
            return
        of, first, second = map(np.array, by_cell)
        self.by_seed = [
            scipy.stats.spearmanr(*pair).statistic
            for pair in zip(of.T, (first - second).T, strict=True)
        ]
        self.value, self.seeds = np.mean(self.by_seed), len(self.by_seed)


def number(cell, key):
    return float(cell[key]) if cell is not None and cell[key] else math.nan


def interval(left, right):
    """Variance of the difference and its degrees of freedom; None where nothing is known."""
    if len(left.by_seed) > 1 and (right.constant or len(right.by_seed) == len(left.by_seed)):
        other = right.value if right.constant else np.array(right.by_seed)
        differences = np.array(left.by_seed) - other
        return differences.var(ddof=1) / len(differences), len(differences) - 1
    if (images := differences_by_image(left, right)) is not None:
        parts = [
            (means.var(ddof=1) / len(means), len(means) - 1)
            for means in (images.mean(0), images.mean(1))
            if len(means) > 1
        ]
        return welch(parts)
    sides = [left, right]
    if max(side.seeds for side in sides) < 2:
        return None
    several, other = sorted(sides, key=lambda side: side.seeds < 2)
    if other.seeds < 2 and not other.constant:
        return several.std**2 * (1 + 1 / several.seeds), several.seeds - 1
    return welch([(s.std**2 / s.seeds, s.seeds - 1) for s in sides if not s.constant])


def differences_by_image(left, right):
    one, other = left.by_image, right.by_image
    if one is None or other is None or (left.constant and right.constant):
        return None
    if left.by_seed or right.by_seed:  # images of one draw tell nothing of another's
        return None
    if right.constant:
        return 100 * (one - other)
    alike = one.shape == other.shape and left.cell["dataset"] == right.cell["dataset"]
    return 100 * (one - other) if alike else None


def welch(parts):
    variance = sum(part for part, _ in parts)
    if not variance:
        return 0.0, 1.0
    return variance, variance**2 / sum(part**2 / own for part, own in parts)


def slack(claim, left, right):
    difference, margin = left.value - right.value, float(claim.get("margin", 0))
    return {
        "above": difference - margin,
        "below": -difference - margin,
        "equal": margin - abs(difference),
        "at least": margin + difference,
    }[claim["relation"]]


def status(claim, left, right):
    known, over = interval(left, right), slack(claim, left, right)
    empirical = claim.get("kind", "empirical") in ("empirical", "timing")
    if known is None and empirical:
        return "undecided"
    by_number = known is None or claim.get("kind") == "control"
    half = 0.0 if by_number else scipy.stats.t.ppf(0.975, known[1]) * math.sqrt(known[0])
    near = 1e-9 * max(1.0, abs(right.value))
    if over > half or (claim["relation"] in ("equal", "at least") and over >= half - near):
        return "held"
    return "contrary" if over < -half or known is None else "undecided"


def closed(claim, sides, paper):
    """Whether a gate is closed for trained models."""
    if any(fnmatch(claim["id"], pattern) for pattern in paper.untested):
        return True
    measured = [cell for side in sides for cell in side.cells]
    if claim.get("kind") == "timing" and any(cell["device"].startswith("cpu") for cell in measured):
        return True
    trained = [
        cell
        for side in sides
        if side.place not in paper.fixed
        for cell in side.cells
        if cell["recipe_hash"]
    ]
    if claim.get("kind", "empirical") != "empirical" or not trained or not paper.models:
        return False
    models = [paper.models.get(cell["recipe_hash"]) for cell in trained]
    if None in models:
        return True
    grids = {tuple(pair.split(":")[0] for pair in model["rates"].split()) for model in models}
    if len(grids) > 1 or any(model["twice"] > model["once"] + 1 for model in models):
        return True
    for model in models:
        share = model["chance"] / 100
        if model["once"] < model["chance"] + 300 * math.sqrt(share * (1 - share) / model["images"]):
            return True
    floors = [
        [float(pair.rsplit(":", 1)[1]) for pair in str(model["floors"]).split() if ":" in pair]
        for model in models
    ]
    pairs = zip(models, floors, strict=True)
    if all(scores and model["once"] < max(scores) for model, scores in pairs):
        return True
    printed = [side.printed for side in sides if side.printed]
    if len(printed) == 2 and claim["relation"] in ("above", "below"):
        (one, one_std), (other, other_std) = printed
        return abs(one - other) < math.hypot(one_std, other_std)
    return False


def judged(claim, paper):
    """Status and p-value of a claim; the worst row decides."""
    sides = [claim["left"], claim["right"]]
    every = [side for side in sides if isinstance(side, dict) and side["row"] == "*"]
    rows = [None]
    if "correlates_with" in claim:
        return verdict(
            claim, [[Correlation(claim, paper), Number(claim["right"], None, paper)]], paper
        )
    if every:
        columns = [
            {r for a, r, c in paper.cells if (a, c) == (s["artifact"], s["column"])} for s in every
        ]
        rows = [
            row for a, row, c in paper.cells if (a, c) == (every[0]["artifact"], every[0]["column"])
        ]
        rows = [row for row in rows if all(row in found for found in columns)]
    return verdict(claim, [[Number(side, row, paper) for side in sides] for row in rows], paper)


def verdict(claim, numbers, paper):
    """Status and p-value of the worst of several pairs of numbers."""
    found = [pair for pair in numbers if not any(math.isnan(side.value) for side in pair)]
    if not found:
        return "not run", math.nan
    tested = [pair for pair in found if not closed(claim, pair, paper)]
    if not tested:
        return "not tested", math.nan
    order = ["contrary", "undecided", "held"]
    worst = min(tested, key=lambda pair: (order.index(status(claim, *pair)), slack(claim, *pair)))
    known = interval(*worst)
    if claim.get("kind", "empirical") != "empirical" or known is None:
        return status(claim, *worst), math.nan
    over = abs(slack(claim, *worst))
    if not known[0]:
        return status(claim, *worst), float(over == 0)
    return status(claim, *worst), 2 * scipy.stats.t.sf(over / math.sqrt(known[0]), known[1])


@pytest.mark.parametrize(("scale", "name"), PUBLISHED)
def test_an_independent_judge_gives_the_published_verdicts(scale, name):
    """Claims that were made after a scale was published have no verdict there."""
    paper = Paper(scale, name)
    claims = [claim for claim in paper.claims if claim["id"] in paper.published.index]
    assert claims
    found = pd.DataFrame(
        [judged(claim, paper) for claim in claims],
        index=[claim["id"] for claim in claims],
        columns=["status", "p"],
    )
    # Claims on the same numbers are one comparison, whose largest p-value counts.
    evidence = paper.published["evidence"].reindex(found.index)
    distinct = found["p"].dropna().groupby(evidence).max()
    if len(distinct):
        adjusted = pd.Series(scipy.stats.false_discovery_control(distinct), distinct.index)
        chance = evidence.map(adjusted) >= 0.05
        decided = found["status"].isin(["held", "contrary"]) & found["p"].notna()
        found.loc[decided & chance, "status"] = "undecided"
    published = paper.published["status"].reindex(found.index)
    differing = found["status"][found["status"] != published]
    assert differing.to_dict() == {}


@pytest.mark.parametrize("scale", SCALES)
def test_models_differ_from_themselves_under_other_seeds_as_often_as_chance_has_it(scale):
    """A control of the intervals: the first half of a model's seeds against the second half.

    A number that several cells show counts once, and fewer than four seeds are no two spreads.
    """
    numbers = set()
    for file in (ROOT / "results" / "published" / scale).glob("*/*.csv"):
        if file.name != "training_logs.csv":
            cells = pd.read_csv(file, keep_default_na=False, dtype=str)
            known = cells[["recipe_hash", "metric", "dataset", "by_seed"]]
            numbers |= set(known[cells["recipe_hash"] != ""].itertuples(index=False, name=None))
    seeds = [np.array(by_seed.split(), float) for *_, by_seed in numbers]
    halves = [np.array_split(values, 2) for values in seeds if len(values) >= 4]
    # Of two constant halves Welch's test has no p-value, and they differ where their means do.
    differing = [
        scipy.stats.ttest_ind(one, other, equal_var=False).pvalue < 0.05
        if one.std() or other.std()
        else one.mean() != other.mean()
        for one, other in halves
    ]
    assert sum(differing) <= scipy.stats.binom.ppf(0.99, len(halves), 0.05)
