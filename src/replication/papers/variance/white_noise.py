"""A control beside Figure 2 of published weights: a table that is interpolated white noise; ours.

A model that was trained at one size and went on at a larger one begins there with an interpolated
table. What a second interpolation keeps of such a table says nothing of how training smoothed it.
"""

from __future__ import annotations

from collections.abc import Sequence

from replication.context import Context, Values
from vitrail.variance.upsampling import variance_ratio, weight_matrix


def interpolated_noise(context: Context, sizes: Sequence[int]) -> Values:
    """Var of white noise after a second bicubic interpolation to that after the first, exactly.

    Args:
        context: without influence, as nothing is drawn.
        sizes: the sides of the noise, of the table P made of it, and of UP(P), in positions.

    Returns:
        ``"<table>/ratio"`` for P, baseline, iid and empirical, as `position_maps` has them.
    """
    noise, table, enlarged = sizes
    first = weight_matrix(noise, table)
    both = weight_matrix(table, enlarged) @ first
    before, after = (each.square().sum(dim=1).mean().item() ** 2 for each in (first, both))
    kept = after / before
    k = variance_ratio((table, table), (enlarged, enlarged))
    return {"P/ratio": 1, "baseline/ratio": kept, "iid/ratio": kept / k, "empirical/ratio": 1}
