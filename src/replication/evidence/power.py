"""What an interval can show: the smallest visible effect, and the seeds that another one needs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from replication.evidence.claims import seed_differences
from replication.evidence.comparison import t_quantile

if TYPE_CHECKING:
    from replication.evidence.claims import Side

MOST = 1000
"""Seeds that are tried at most."""


def spread(left: Side, right: Side) -> float:
    """The standard deviation over seeds of a difference; NaN where fewer than two are known.

    That of the differences of each seed where these are paired, else of a difference of two seeds.
    """
    if (differences := seed_differences(left, right)) is not None:
        return float(differences.std(ddof=1))
    stds = [side.std for side in (left, right) if side.n_seeds > 1]
    return math.hypot(*stds) if stds else math.nan


def visible(std: float, seeds: int) -> float:
    """Half the 95 % interval of a mean over so many seeds, of this standard deviation."""
    return t_quantile(seeds - 1) * std / math.sqrt(seeds) if seeds > 1 else math.inf


def needed(std: float, effect: float) -> int | None:
    """The fewest seeds whose interval is no wider than an effect; None if more than `MOST`."""
    return next((n for n in range(2, MOST + 1) if visible(std, n) <= abs(effect)), None)
