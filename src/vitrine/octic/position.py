"""Octic position encoding (Sec. 3.3.1, Eq. 10): it turns with the grid of tokens.

Six free quarters ``(G/2, G/2)``, unfolded to a grid for each plane. Another grid is sampled from
the unfolded ones by bicubic interpolation about the centre, which the group leaves where it is; an
offset as DINOv2's would break the equivariance.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from vitrine.errors import VitrineError
from vitrine.octic.linear import octic_channels
from vitrine.octic.quarters import unfold_quarters

STD = 8 * 0.02
"""Of the CLS token, as published: an A1 plane alone carries what all channels would."""


class OcticPositionEmbedding(nn.Module):
    """Equivariant position encoding ``(8, 1, N, c)``.

    Attributes:
        weight: ``(6, c, G/2, G/2)`` of A1, A2, B1, B2 and E's two copies.
        grid: (G, G) of the weights.
    """

    def __init__(self, grid: int, dim: int) -> None:
        """Build it with truncated normal weights.

        Args:
            grid: G, tokens along a side, even.
            dim: C, channels of all planes together.

        Raises:
            VitrineError: `grid` is odd, or `dim` is no multiple of 8.
        """
        super().__init__()
        self.grid = (grid, grid)
        require_even(self.grid)
        self.weight = nn.Parameter(torch.empty(6, octic_channels(dim), grid // 2, grid // 2))
        nn.init.trunc_normal_(self.weight, std=STD / math.sqrt(2))

    def forward(self, grid: tuple[int, int] | None = None) -> Tensor:
        """Return the encoding of a grid of tokens, by default that of the weights.

        Raises:
            VitrineError: a side of `grid` is odd.
        """
        return resize(unfold_quarters(self.weight), grid).flatten(2).mT.unsqueeze(1)


def require_even(grid: tuple[int, int]) -> None:
    """Refuse a grid of tokens that has a middle row or column.

    Raises:
        VitrineError: it has.
    """
    if grid[0] % 2 or grid[1] % 2:
        raise VitrineError(
            f"a grid of {grid[0]} x {grid[1]} patches has an odd side; "
            "give images of an even number of patches"
        )


def resize(planes: Tensor, grid: tuple[int, int] | None) -> Tensor:
    """Sample ``(planes, c, G, G)`` on another grid, symmetrically about the centre.

    Raises:
        VitrineError: a side of `grid` is odd.
    """
    if grid is None or grid == tuple(planes.shape[2:]):
        return planes
    require_even(grid)
    return functional.interpolate(planes, size=grid, mode="bicubic", align_corners=False)
