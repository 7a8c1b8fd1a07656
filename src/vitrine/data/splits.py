"""Which images: fixed splits for datasets that come without one, and a few out of many."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def stratified_split(
    labels: Sequence[int], train_fraction: float, seed: int = 0
) -> tuple[list[int], list[int]]:
    """Split indices so that each class keeps the same train fraction, up to rounding.

    `RandomState` rather than `Generator`: NumPy promises that its stream never changes (NEP 19),
    so a split made today is the split made by every later version.

    Returns:
        Train and validation indices, each in ascending order.
    """
    random = np.random.RandomState(seed)
    classes = np.asarray(labels)
    train: list[int] = []
    val: list[int] = []
    for label in np.unique(classes):
        members = random.permutation(np.flatnonzero(classes == label))
        cut = round(train_fraction * len(members))
        train += members[:cut].tolist()
        val += members[cut:].tolist()
    return sorted(train), sorted(val)


def evenly_spread(total: int, count: int | None) -> list[int]:
    """So many of the indices below `total`, at equal distances from 0 on; None or too many: all."""
    count = total if count is None else min(count, total)
    return [index * total // count for index in range(count)]
