"""APE, the learned absolute position embedding (Dosovitskiy et al., ICLR 2021, Sec. 3.1).

With a CLS token it has a row for that too, which permutes with the others, as the paper's
authors have it.
"""

from __future__ import annotations

import torch
from timm.layers import resample_abs_pos_embed
from torch import Tensor, nn

from vitrine.position.embeddings.base import AdditiveEmbedding, Layout, Size, Weights

STD = 0.02


class APE(AdditiveEmbedding):
    """A row of parameters for every token.

    Attributes:
        weight: ``(N, D)``; row 0 is the CLS token's, if there is one.
    """

    def __init__(self, layout: Layout) -> None:
        """Build it with truncated normal rows."""
        super().__init__(layout)
        self.positions = layout.num_tokens
        self.weight = nn.Parameter(torch.empty(self.positions, layout.embed_dim))
        nn.init.trunc_normal_(self.weight, std=STD)

    def resampled(self, weights: Weights, grid: Size | None) -> Weights:
        """Interpolate the rows of the patches, as timm does; see `PositionEmbedding`."""
        rows = resample_abs_pos_embed(
            weights["weight"].unsqueeze(0),
            new_size=list(self.layout.grid),
            old_size=list(grid) if grid else None,
            num_prefix_tokens=int(self.layout.class_token),
        )
        return {**weights, "weight": rows.squeeze(0)}

    def table(self, batch: int) -> Tensor:
        """Return the parameters."""
        return self.weight
