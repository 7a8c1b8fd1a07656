"""Relative position embeddings, which score the offset between two tokens: RPE, iRPE and ALiBi.

Each class names its source. As the position paper's authors have it, RPE and iRPE act in the first
layer only, and unscaled beside the scaled scores. ALiBi, which the paper lacks, acts in all layers.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from vitrail.errors import VitrailError
from vitrail.position.embeddings.base import Layout, PositionEmbedding, Size, Weights, lookup

ALPHA, BETA, GAMMA = 1.9, 3.8, 15.2
"""iRPE's: offsets up to ALPHA are exact; larger ones get a logarithmic index, at most `REACH`.

So the offsets 0 and ±1 keep their index, ±2 and ±3 get ±2, and all larger ones get ±3. GAMMA is the
offset whose index would be BETA without rounding and clipping.
"""
REACH = int(BETA)
SIDE = 2 * REACH + 1


class RPE(PositionEmbedding):
    """RPE of both axes (Srinivas et al., CVPR 2021, Sec. 3, Fig. 4): adds ``q r_h + q r_w``.

    A query scores the offset to a key by a vector for each: `height`, ``(2h - 1, d)``, has those of
    offsets down and `width`, ``(2w - 1, d)``, those across, of expected squared length 1. All heads
    share them. CLS has no position. The position paper cites Shaw et al. (NAACL 2018) for RPE; its
    authors' code has these two tables.
    """

    down: Tensor
    across: Tensor

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        (height, width), dim = layout.grid, layout.head_dim
        self.height = nn.Parameter(torch.randn(2 * height - 1, dim) / math.sqrt(dim))
        self.width = nn.Parameter(torch.randn(2 * width - 1, dim) / math.sqrt(dim))

    def constants(self) -> dict[str, Tensor]:
        """Return the offset of each pair of patches down and across, as rows of the tables."""
        (height, width), (x, y) = self.layout.grid, self.layout.coordinates().unbind(1)
        down, across = y - y.unsqueeze(1) + height - 1, x - x.unsqueeze(1) + width - 1
        return {"down": down, "across": across}

    def resampled(self, weights: Weights, grid: Size | None) -> Weights:
        """Interpolate along the offsets, as timm does; see `PositionEmbedding`."""
        return {
            name: functional.interpolate(weights[name].mT[None], len(table), mode="linear")[0].mT
            for name, table in self.named_parameters()
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
    """RPE that does not see offsets down, as in the authors' code.

    The code of the paper's authors lacks a transpose: the offset across has both vectors, the
    offset down none. It is the embedding ``rpe-as-published``.

    Raises:
        VitrailError: the grid is not square, so the vectors of offsets down do not fit.
    """

    def __init__(self, layout: Layout) -> None:
        """Build it as `RPE`.

        Raises:
            VitrailError: the grid is not square, so the vectors of offsets down do not fit.
        """
        super().__init__(layout)
        if layout.grid[0] != layout.grid[1]:
            raise VitrailError(
                f"embedding 'rpe-as-published' needs a square grid, not {layout.grid}: give "
                "img_size one side, or use 'rpe'"
            )

    def constants(self) -> dict[str, Tensor]:
        """Return the offset across for both."""
        across = super().constants()["across"]
        return {"down": across, "across": across}


def piecewise_index(offset: Tensor) -> Tensor:
    """Return iRPE's bucket (its equation 18) of every offset along an axis, to ``±REACH``."""
    distance = offset.abs().clamp(min=ALPHA)
    far = ALPHA + (BETA - ALPHA) * (distance / ALPHA).log() / math.log(GAMMA / ALPHA)
    far = far.round().clamp(max=REACH).to(offset.dtype) * offset.sign()
    return torch.where(offset.abs() <= ALPHA, offset, far)


class IRPE(PositionEmbedding):
    """iRPE, contextual, on keys, product (Wu et al., ICCV 2021): adds ``q r`` of a pair's bucket.

    Offsets fall into buckets along either axis on its own, the coarser the longer they are; a query
    scores the bucket of a key's offset, every head by its own vectors, at first zero: `weight` is
    ``(H, d, buckets)``. Pairs with the CLS token have the last bucket.
    """

    index: Tensor

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self.prefix = int(layout.class_token)
        buckets = SIDE**2 + self.prefix
        self.weight = nn.Parameter(torch.zeros(layout.num_heads, layout.head_dim, buckets))

    def constants(self) -> dict[str, Tensor]:
        """Return the bucket of each pair of tokens, ``(T, T)``."""
        coordinates, prefix = self.layout.coordinates(), int(self.layout.class_token)
        x, y = (piecewise_index(coordinates - coordinates.unsqueeze(1)) + REACH).unbind(2)
        return {"index": functional.pad(SIDE * y + x, (prefix, 0, prefix, 0), value=SIDE**2)}

    def bias(self, q: Tensor, layer: int, permutation: Tensor | None) -> Tensor | None:
        """Score the buckets of the offsets between the permuted positions."""
        if layer:
            return None
        if permutation is not None and self.prefix:
            permutation = functional.pad(permutation + 1, (1, 0))  # CLS keeps its place
        return lookup(q @ self.weight, self.index, permutation)


class ALiBi(PositionEmbedding):
    """ALiBi in two dimensions: subtracts a slope times the distance of two patches, in all layers.

    Source: Press et al., ICLR 2022, Sec. 3 (arXiv 2108.12409), whose slopes of H heads are
    ``2 ** (-8 h / H)``, h from 1 to H, and fixed. For images, "What DINO saw" (arXiv 2603.16840)
    reduces position bias by it. The distance is Euclidean, between the centres of patches and in
    patches. Pairs with a CLS token have no bias. Nothing is trained.

    Attributes:
        slopes: ``(H,)``.
        distances: ``(N, N)``.
    """

    slopes: Tensor
    distances: Tensor

    def constants(self) -> dict[str, Tensor]:
        """Compute the slopes and distances."""
        heads = torch.arange(1, self.layout.num_heads + 1)
        places = self.layout.coordinates().float()
        distances = (places - places.unsqueeze(1)).norm(dim=2)
        return {"slopes": 2 ** (-8 * heads / self.layout.num_heads), "distances": distances}

    def bias(self, q: Tensor, layer: int, permutation: Tensor | None) -> Tensor | None:
        """Penalise the distances between the permuted positions; of one image if none permute."""
        distances = self.distances[None]
        if permutation is not None:
            distances = self.distances[permutation.unsqueeze(2), permutation.unsqueeze(1)]
        prefix = q.shape[2] - self.positions
        scores = -self.slopes[:, None, None] * distances.unsqueeze(1)  # (B or 1, H, N, N)
        return functional.pad(scores, (prefix, 0, prefix, 0)).to(q.dtype)
