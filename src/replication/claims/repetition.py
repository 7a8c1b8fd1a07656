"""How far chance sets the numbers of two repetitions of one experiment apart.

Two repetitions agree if no number, and no table or figure as a whole, differs by more than chance
explains. Of a number, chance is

- the spread over seeds, where either side has several whose numbers are not all equal: Welch's t
  test of the two means (a single run on the other side has the same spread);
- else, of several seeds with equal numbers, the largest spread over seeds that is published of its
  metric in its table. It is taken as known: the difference is then normal;
- else nothing that a probability can be computed from: a single run says nothing of its spread,
  and the other models of its table may be trained longer. Such a number may differ by half of the
  largest published one of its metric in its table.

Numbers of one training depend on each other: one training that came out otherwise changes them
all. So the trainings of a table are counted and not its numbers: a training lies beyond its
interval if one of its n numbers has a p-value below 5 %/n, whatever their dependence. If trainings
are independent, their count is binomial. (Trainings of one seed may share images, which makes such
counts vary more.)

Each of the two tests, of numbers and of tables, fails an unchanged repetition with a probability of
at most 0.5 %, by Bonferroni's correction, so both together of at most 1 %.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from scipy.stats import binom

from replication.claims.comparison import CONFIDENCE, Uncertainty, difference_of_means
from replication.claims.judge import Side

FALSE_ALARM = 0.01 / 2  # of each test, how probable it is that it fails unchanged repetitions
OF_LARGEST = 0.5  # of the largest number, how much one may differ of whose spread nothing is known


def difference(before: Side, after: Side, published: float) -> Uncertainty | None:
    """What chance says of a number's difference between two repetitions; None if nothing is known.

    `published` is the standard deviation that is taken where seeds have equal numbers, or 0.
    """
    spread = [side for side in (before, after) if side.std > 0]  # not NaN, as of a single run
    if not spread:
        runs = 1 / before.n_seeds + 1 / after.n_seeds
        single = runs == 2  # one on each side
        return Uncertainty(published**2 * runs, math.inf) if published and not single else None
    if 1 in (before.n_seeds, after.n_seeds):
        return difference_of_means(spread[0].n_seeds, spread[0].std, 1, None)
    return difference_of_means(before.n_seeds, before.std, after.n_seeds, after.std)


def beyond_chance(p_values: Sequence[float]) -> list[bool]:
    """For each number whether it differs more than chance explains, so many being looked at."""
    return [p_value * len(p_values) < FALSE_ALARM for p_value in p_values]


def trainings_beyond(numbers: Iterable[tuple[str, float]]) -> tuple[int, int]:
    """How many trainings lie beyond their 95 % interval, and of how many.

    `numbers` are pairs of the training that a number is of and the number's p-value.
    """
    of_training = defaultdict(list)
    for training, p_value in numbers:
        of_training[training].append(p_value)
    smallest = [min(1.0, len(own) * min(own)) for own in of_training.values()]
    return sum(p_value < 1 - CONFIDENCE for p_value in smallest), len(smallest)


def trainings_allowed(trainings: int, families: int) -> int:
    """How many of a family's trainings may lie beyond by chance, so many families looked at."""
    if not trainings:
        return 0
    return int(binom.ppf(1 - FALSE_ALARM / families, trainings, 1 - CONFIDENCE))
