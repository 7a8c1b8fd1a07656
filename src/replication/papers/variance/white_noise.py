"""A control for Figure 2 with published weights: a table of interpolated white noise; ours.

A model that is trained at one size and then at a larger one starts there with an interpolated
table. The variance that a second interpolation keeps of such a table does not show how much
training has smoothed it.
"""

from __future__ import annotations

from collections.abc import Sequence

from replication.context import Context, Values
from vitrail.variance.upsampling import variance_ratio, weight_matrix


def interpolated_noise(context: Context, sizes: Sequence[int]) -> Values:
    """Compute the variance of white noise after two bicubic interpolations over that after one.

    The result is exact.

    Args:
        context: not used, as no random numbers are drawn.
        sizes: the sides of the noise, of the table P interpolated from it, and of UP(P), in
            positions.

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
