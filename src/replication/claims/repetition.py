"""How much two repetitions of one experiment may differ by chance.

Two repetitions agree if no number, and no table or figure as a whole, differs by more than chance
explains. For a number, chance is given by the first of these rules that applies:

- One side has several seeds whose numbers are not all equal: the spread over seeds, by Welch's t
  test of the two means. A single run on the other side is taken to have the same spread.
- There are several seeds, with equal numbers: the largest spread over seeds that is published for
  the same metric in the same table. It is taken as known, so the difference is normal.
- Otherwise no probability can be computed: a single run tells nothing about its spread, and the
  other models of its table may be trained longer. Such a number may differ by half of the largest
  published number of its metric in its table.

Numbers of one training depend on each other: if the training comes out differently, all of them
change. So for a table the trainings are counted and not the numbers: a training with n numbers lies
beyond its interval if one of them has a p-value below 5 %/n, whatever their dependence. If
trainings are independent, the number of those beyond is binomial. (Trainings of one seed may share
images, which makes such counts vary more.)

Each of the two tests, of numbers and of tables, rejects an unchanged repetition with a probability
of at most 0.5 % (Bonferroni), so both together with at most 1 %.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from scipy.stats import binom

from replication.claims.comparison import CONFIDENCE, Uncertainty, difference_of_means
from replication.claims.judge import Side

FALSE_ALARM = 0.01 / 2  # probability that one test rejects an unchanged repetition
OF_LARGEST = 0.5  # share of the largest number by which one of unknown spread may differ


def difference(before: Side, after: Side, published: float) -> Uncertainty | None:
    """Return the chance difference of a number in two repetitions; None if nothing is known.

    `published` is the standard deviation that is used if all seeds have equal numbers; 0 if none is
    published.
    """
    spread = [side for side in (before, after) if side.std > 0]  # False for NaN, of a single run
    if not spread:
        runs = 1 / before.n_seeds + 1 / after.n_seeds
        single = runs == 2  # one on each side
        return Uncertainty(published**2 * runs, math.inf) if published and not single else None
    if 1 in (before.n_seeds, after.n_seeds):
        return difference_of_means(spread[0].n_seeds, spread[0].std, 1, None)
    return difference_of_means(before.n_seeds, before.std, after.n_seeds, after.std)


def beyond_chance(p_values: Sequence[float]) -> list[bool]:
    """Tell for each p-value whether its number differs by more than chance (Bonferroni)."""
    return [p_value * len(p_values) < FALSE_ALARM for p_value in p_values]


def trainings_beyond(numbers: Iterable[tuple[str, float]]) -> tuple[int, int]:
    """Return how many trainings lie beyond their 95 % interval, and how many there are.

    `numbers` are pairs: the training that a number belongs to, and the number's p-value.
    """
    of_training = defaultdict(list)
    for training, p_value in numbers:
        of_training[training].append(p_value)
    smallest = [min(1.0, len(own) * min(own)) for own in of_training.values()]
    return sum(p_value < 1 - CONFIDENCE for p_value in smallest), len(smallest)


def trainings_allowed(trainings: int, families: int) -> int:
    """Return how many of a family's trainings may lie beyond their interval by chance.

    `families` is the number of families (tables or figures) that are tested.
    """
    if not trainings:
        return 0
    return int(binom.ppf(1 - FALSE_ALARM / families, trainings, 1 - CONFIDENCE))
