"""Propositions 1 to 3: what Mixup, Cutmix and random erasing do to the variance of an image.

The one idea: each makes a new image from an image and something else, by weights or by a mask, so
its variance follows from the first two moments of both. All results are ratios Var[after] /
Var[before]. Moments may be those of a whole batch (pooled) or of one image (within); the formulas
are the same, and the two answers differ because images differ in their means.
"""

from __future__ import annotations

from typing import TypeVar

from torch import Tensor

Number = TypeVar("Number", float, Tensor)


def mixup_variance(lam: Number, rho: float = 0.0) -> Number:
    """The ratio for lam * v_i + (1 - lam) * v_j of correlation `rho` (variance, Proposition 1).

    The paper has rho = 0. Below 1 for every lam in (0, 1), unless the images are equal (rho = 1).
    """
    return lam**2 + (1 - lam) ** 2 + 2 * lam * (1 - lam) * rho


def beta_mixup_variance(alpha: float, rho: float = 0.0) -> float:
    """Mean of `mixup_variance` over lam ~ Beta(alpha, alpha), which is how Mixup draws it.

    E[lam (1 - lam)] = alpha / (2 (2 alpha + 1)), so that rho = 0 gives
    (alpha + 1) / (2 alpha + 1).
    """
    return 1 - (1 - rho) * alpha / (2 * alpha + 1)


def cutmix_variance(area: Number, gap: Number, variance: Number) -> Number:
    """The ratio where `area`, a fraction, comes from the other image (variance, Proposition 2).

    The two means differ by `gap`, 0 in the paper; `variance` is that of either image.
    """
    return 1 + area * (1 - area) * gap**2 / variance


def erasing_variance(
    fraction: Number, mean: Number, variance: Number, power: float, shared: float = 0.0
) -> Number:
    """The ratio where a `fraction` f of an image is noise e (variance, Proposition 3).

    ((1 - f) (v + m^2) + f E[e^2] - ((1 - f) m)^2 - f^2 s) / v is 1 for mean m = 0, variance v = 1,
    power E[e^2] = 1 and s = 0: standardised images, noise of unit variance, a new value for each
    pixel. The power is 0 for ``const``. The variance s of the erased block's mean is 0 for
    ``pixel`` and for a batch of many blocks; within one image ``rand`` has 1 / channels.
    """
    kept = 1 - fraction
    second = kept * (variance + mean**2) + fraction * power
    return (second - (kept * mean) ** 2 - fraction**2 * shared) / variance
