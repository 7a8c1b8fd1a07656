"""FF, learnable Fourier features (Li et al., NeurIPS 2021, Algorithm 1).

Sines and cosines of learned mixtures of x and y, through an MLP.
"""

from __future__ import annotations

import math

import torch
from timm.layers import Mlp
from torch import Tensor, nn

from vitrine.position.embeddings.base import AdditiveEmbedding, Layout

GAMMA = 2.5
MLP_RATIO = 4


class FourierFeatures(AdditiveEmbedding):
    """An MLP of D Fourier features of a patch's (x, y); a CLS token gets none.

    Attributes:
        frequencies: the mixtures, ``(D/2, 2)``.
        mlp: D to 4D to D channels.
    """

    coordinates: Tensor

    def __init__(self, layout: Layout) -> None:
        """Draw normal mixtures; raises VitrineError where D is odd."""
        super().__init__(layout)
        dim = layout.embed_dim
        layout.require_divisible("ff", dim, by=2)
        self.frequencies = nn.Linear(2, dim // 2, bias=False)
        nn.init.normal_(self.frequencies.weight, std=GAMMA**-2)
        self.mlp = Mlp(dim, MLP_RATIO * dim, dim)
        self.register_buffer("coordinates", layout.coordinates().float(), persistent=False)

    def table(self, batch: int) -> Tensor:
        """Compute the embeddings."""
        phases = self.frequencies(self.coordinates)
        features = torch.cat([phases.cos(), phases.sin()], dim=-1) / math.sqrt(2 * phases.shape[-1])
        embeddings: Tensor = self.mlp(features)
        return embeddings
