"""A control of the verdicts: each model against itself under other seeds, where nothing differs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import bdtr

from replication.evidence.comparison import difference_of_means

if TYPE_CHECKING:
    import pandas as pd

FEWEST = 4
"""Seeds that a model needs to be compared with itself, two against two."""

CHANCE = 0.05
"""Share of these comparisons in which a 95 % interval shows a difference by chance alone."""


class Twice(NamedTuple):
    """How many models were compared with themselves, and how many of them seemed to differ."""

    compared: int
    differing: int

    @property
    def is_expected(self) -> bool:
        """Whether chance alone gives as many in more than one of a hundred cases."""
        return self.compared == 0 or self.differing <= _most(self.compared)


def against_themselves(tables: Iterable[pd.DataFrame]) -> Twice:
    """Compare the first half of each trained model's seeds with the second, by Welch's interval.

    A number that several cells show, of one recipe, quantity and dataset, counts once.
    """
    numbers = {
        (cell["recipe_hash"], cell["metric"], cell["dataset"], cell["by_seed"])
        for cells in tables
        for cell in cells.to_dict("records")
        if cell["recipe_hash"] and len(str(cell["by_seed"]).split()) >= FEWEST
    }
    differing = [_differs(np.array(by_seed.split(), float)) for *_, by_seed in sorted(numbers)]
    return Twice(len(differing), sum(differing))


def _differs(values: np.ndarray) -> bool:
    halves = np.array_split(values, 2)
    (first, n), (second, m) = ((half, len(half)) for half in halves)
    known = difference_of_means(n, float(first.std(ddof=1)), m, float(second.std(ddof=1)))
    return bool(abs(first.mean() - second.mean()) > known.half_width)


def _most(compared: int) -> int:
    """The most that chance decides in 99 of 100 cases: a quantile of the binomial distribution."""
    counts = np.arange(compared + 1)

    return int(counts[bdtr(counts, compared, CHANCE) >= 0.99][0])
