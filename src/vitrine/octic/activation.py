"""GELU of octic features (Sec. 3.3): a pointwise function commutes with permutations only.

In the regular representation the group permutes the eight planes, so the activation transforms the
features there, applies the exact GELU and transforms back.
"""

from __future__ import annotations

import importlib.util

import torch
from torch import Tensor, nn
from torch.nn import functional

from vitrine.octic.group import FOURIER, INVERSE_FOURIER, SCALE, fourier, inverse_fourier

CHUNK = 1 << 14
"""Columns of ``(8, M)`` that stay in a core's cache through both transforms."""


def octic_gelu(x: Tensor) -> Tensor:
    """Apply the exact GELU to ``(8, ...)`` in the regular representation."""
    if torch.compiler.is_compiling():  # additions, which become one loop
        regular = [functional.gelu(SCALE * plane) for plane in inverse_fourier(x.unbind())]
        return torch.stack([SCALE * plane for plane in fourier(regular)])
    if x.is_cuda and x.dtype != torch.float64 and importlib.util.find_spec("triton"):
        from vitrine.octic import kernels

        return kernels.octic_gelu(x)
    planes = x.flatten(1)
    to_regular, to_isotypic = INVERSE_FOURIER.to(x), FOURIER.to(x)
    if torch.is_grad_enabled() or not x.is_cpu:
        return (to_isotypic @ functional.gelu(to_regular @ planes)).view_as(x)
    y = torch.empty_like(planes)
    with torch.autocast("cpu", enabled=False):  # it would not write into the dtype of the input
        for chunk, out in zip(planes.split(CHUNK, 1), y.split(CHUNK, 1), strict=True):
            torch.mm(to_isotypic, functional.gelu(to_regular @ chunk), out=out)
    return y.view_as(x)


class OcticGELU(nn.Module):
    """`octic_gelu` as a layer."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply it to ``(8, B, N, c)``."""
        return octic_gelu(x)

    def operations(self, x: Tensor) -> int:
        """Count GELU as 8, and of either fast transform 24 additions and 8 products of 8 planes."""
        return (8 + 2 * 4) * x.numel()
