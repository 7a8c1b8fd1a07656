"""iRPE, image relative position encoding (Wu et al., ICCV 2021): contextual, on keys, product.

Offsets fall into buckets, the coarser the longer they are (equation 18 there), along either axis
on its own; a query scores the bucket of a key's offset, every head by its own vectors. As the
paper's authors have it, in the first layer only, and unscaled beside the scaled scores.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from vitrine.position.embeddings.base import Layout, PositionEmbedding, lookup

ALPHA, BETA, GAMMA = 1.9, 3.8, 15.2
"""Offsets are exact up to alpha; buckets end near beta, which offsets of gamma and more reach."""
REACH = int(BETA)
SIDE = 2 * REACH + 1


def piecewise_index(offset: Tensor) -> Tensor:
    """Return the bucket of every offset along an axis, from ``-REACH`` to ``REACH``."""
    distance = offset.abs().clamp(min=ALPHA)
    far = ALPHA + (BETA - ALPHA) * (distance / ALPHA).log() / math.log(GAMMA / ALPHA)
    far = far.round().clamp(max=REACH).to(offset.dtype) * offset.sign()
    return torch.where(offset.abs() <= ALPHA, offset, far)


class IRPE(PositionEmbedding):
    """Adds ``q r`` to the first layer's scores, r of the pair's bucket; CLS has one of its own.

    Attributes:
        weight: ``(H, d, buckets)``; the last bucket is that of pairs with the CLS token.
    """

    index: Tensor

    def __init__(self, layout: Layout) -> None:
        """Build it with zero vectors, which leave the scores as they are."""
        super().__init__(layout)
        self.prefix = int(layout.class_token)
        buckets = SIDE**2 + self.prefix
        self.weight = nn.Parameter(torch.zeros(layout.num_heads, layout.head_dim, buckets))
        coordinates = layout.coordinates()
        x, y = (piecewise_index(coordinates - coordinates.unsqueeze(1)) + REACH).unbind(2)
        index = functional.pad(SIDE * y + x, (self.prefix, 0, self.prefix, 0), value=SIDE**2)
        self.register_buffer("index", index, persistent=False)

    def bias(self, q: Tensor, layer: int, permutation: Tensor | None) -> Tensor | None:
        """Score the buckets of the offsets between the permuted positions."""
        if layer:
            return None
        if permutation is not None and self.prefix:
            permutation = functional.pad(permutation + 1, (1, 0))  # CLS keeps its place
        return lookup(q @ self.weight, self.index, permutation)
