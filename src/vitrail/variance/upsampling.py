"""The variance ratio k of interpolation (variance, Theorem 1, Table 2).

Interpolation is linear, UP(v) = A v. Each row of A sums to 1, so E[UP(v)] = E[v]. If v is white
noise, Var[UP(v)] = k Var[v], and k is the mean over the rows of A of the sum of their squared
entries; no sampling is needed. The paper says that the upsampling rate does not affect k. Bilinear
and bicubic k do depend on the old and the new size. Two axes are interpolated one after the other,
so k of a plane is the product of its axes' k.
"""

from __future__ import annotations

import functools
import math
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.errors import require_known

Mode = Literal["nearest", "bilinear", "bicubic"]


def upsample(
    planes: Tensor, size: tuple[int, int], mode: Mode = "bicubic", antialias: bool = False
) -> Tensor:
    """Interpolate ``(B, C, h, w)`` to ``(B, C, *size)`` as Vision Transformers do.

    The mode "nearest" copies values, so `antialias` has no effect there.

    Raises:
        VitrailError: there is no such mode.
    """
    require_known("interpolation mode", mode, get_args(Mode))
    if mode == "nearest":
        return F.interpolate(planes, size, mode=mode)
    return F.interpolate(planes, size, mode=mode, align_corners=False, antialias=antialias)


def weight_matrix(old: int, new: int, mode: Mode = "bicubic", antialias: bool = False) -> Tensor:
    """Return the matrix A of UP(v) = A v along one axis.

    A is float64, ``(new, old)``; each row sums to 1. It is torch's interpolation of the identity
    matrix, so it has the weights of torch's kernel. (The parameter a of torch's bicubic kernel is
    -0.75 without antialiasing and -0.5 with it.)
    """
    # The basis vectors lie along the second spatial axis, which keeps its size: with a second
    # axis of length 1, torch 2.13 gives wrong weights under antialiasing.
    identity = torch.eye(old, dtype=torch.float64)[None, None]
    return upsample(identity, (new, old), mode, antialias)[0, 0]


@functools.cache  # a segmenter needs the same ratio for every image
def axis_variance_ratio(
    old: int, new: int, mode: Mode = "bicubic", antialias: bool = False
) -> float:
    """Return k1D = Var[UP(v)] / Var[v] of white noise v, exactly (variance, Theorem 1)."""
    return weight_matrix(old, new, mode, antialias).square().sum(dim=1).mean().item()


def variance_ratio(
    old: tuple[int, int], new: tuple[int, int], mode: Mode = "bicubic", antialias: bool = False
) -> float:
    """Return k of a plane of white noise: the product over its two axes (k2D = k1D^2 if square)."""
    sides = zip(old, new, strict=True)
    return math.prod(axis_variance_ratio(*side, mode, antialias) for side in sides)


def sampled_variance_ratio(
    old: tuple[int, int],
    new: tuple[int, int],
    mode: Mode = "bicubic",
    antialias: bool = False,
    *,
    maps: int,
    generator: torch.Generator,
) -> float:
    """Estimate k by sampling: the ratio of variances of `maps` upsampled planes of white noise."""
    before, after = 0.0, 0.0
    for _ in range(maps):
        noise = torch.randn(1, 1, *old, generator=generator)
        before += noise.square().mean().item()
        after += upsample(noise, new, mode, antialias).square().mean().item()
    return after / before
