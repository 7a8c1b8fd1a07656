"""RPE, relative position embedding of both axes (Srinivas et al., CVPR 2021, Sec. 3 and Fig. 4).

A query scores the offset to a key, down and across, by a vector for each; all heads share these.
As the paper's authors have it, in the first layer only, and unscaled beside the scaled scores.

Their code lacks a transpose: the offset across has both vectors, the offset down none. `AcrossOnly`
is that, the embedding ``rpe-as-published``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from vitrine.errors import VitrineError
from vitrine.position.embeddings.base import (
    Layout,
    PositionEmbedding,
    Size,
    Weights,
    lookup,
)


class RPE(PositionEmbedding):
    """Adds ``q r_h + q r_w`` to the first layer's scores of patches; CLS has no position.

    Attributes:
        height: ``(2h - 1, d)``, the offsets down.
        width: ``(2w - 1, d)``, the offsets across.
    """

    down: Tensor
    across: Tensor

    def __init__(self, layout: Layout) -> None:
        """Build it with normal vectors of expected squared length 1."""
        super().__init__(layout)
        (height, width), dim = layout.grid, layout.head_dim
        self.height = nn.Parameter(torch.randn(2 * height - 1, dim) / math.sqrt(dim))
        self.width = nn.Parameter(torch.randn(2 * width - 1, dim) / math.sqrt(dim))
        x, y = layout.coordinates().unbind(1)
        self.register_buffer("down", y - y.unsqueeze(1) + height - 1, persistent=False)
        self.register_buffer("across", x - x.unsqueeze(1) + width - 1, persistent=False)

    def resampled(self, weights: Weights, grid: Size | None) -> Weights:
        """Interpolate along the offsets, as timm does; see `PositionEmbedding`."""
        lengths = dict(zip(("height", "width"), map(len, (self.height, self.width)), strict=True))
        return {
            name: functional.interpolate(weights[name].mT[None], size=length, mode="linear")[0].mT
            for name, length in lengths.items()
        }

    def bias(self, q: Tensor, layer: int, permutation: Tensor | None) -> Tensor | None:
        """Score the offsets between the permuted positions."""
        if layer:
            return None
        prefix = q.shape[2] - self.positions
        q = q[:, :, prefix:]
        scores = lookup(q @ self.height.T, self.down, permutation)
        scores = scores + lookup(q @ self.width.T, self.across, permutation)
        return functional.pad(scores, (prefix, 0, prefix, 0))


class AcrossOnly(RPE):
    """RPE that does not see offsets down, as in the published code."""

    def __init__(self, layout: Layout) -> None:
        """Build it as `RPE`.

        Raises:
            VitrineError: the grid is not square, so the vectors of offsets down do not fit.
        """
        super().__init__(layout)
        if layout.grid[0] != layout.grid[1]:
            raise VitrineError(
                f"embedding 'rpe-as-published' needs a square grid, not {layout.grid}: give "
                "img_size one side, or use 'rpe'"
            )
        self.down = self.across
