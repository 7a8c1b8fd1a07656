"""RoPE, rotary position embedding: "RoPE-Mixed" of Heo et al. (ECCV 2024, Sec. 3.2), and "axial".

Pairs of channels of queries and keys turn by angles linear in x and y, so that their products
depend on where tokens are relative to each other. The position paper's RoPE is RoPE-Mixed, which
learns the frequencies for each layer and head; it is timm's `RotaryEmbeddingMixed`, to which a
permutation of positions is added. The paper lacks the axial one, whose frequencies are fixed.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from vitrail.position.embeddings.base import Layout, PositionEmbedding

# Bases of the frequencies (Heo et al., Sec. 3.2). The theta of the paper's Eq. 10 is `frequencies`.
THETA, AXIAL_THETA = 10.0, 100.0


class RoPE(PositionEmbedding):
    """Turns queries and keys of the patches in all layers (position, Eq. 10).

    Two channels are one complex number. Those of a query at m are multiplied by e^(i m theta) and
    those of a key at n by e^(i n theta), so that a query times a conjugate key has the factor
    e^(i (m - n) theta) of Eq. 10. Here m and n are places (x, y), and theta is `frequencies`.

    The position paper says that theta starts as in the sinusoidal encoding (App. B), whose base is
    10^4 in this library (`absolute.SIN_BASE`). In this class theta starts as in RoPE-Mixed: vectors
    of length 10^(-4t/d) for t = 0 to d/4 - 1, in two directions at right angles, which are drawn at
    random for each layer and head.

    A CLS token is left out: it is as if at (0, 0), so that what it sees of a patch is absolute.

    Attributes:
        frequencies: ``(layers, 2, H, d/2)``, of x and y.
        coordinates: (x, y), ``(N, 2)`` int64.

    Raises:
        VitrailError: a head's channels are no multiple of 4.
    """

    qkv_bias = False
    frequencies: Tensor
    coordinates: Tensor  # (x, y), (N, 2)

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        dim = layout.head_dim
        layout.require_divisible("rope", dim, by=4)
        lengths = THETA ** -(torch.arange(0, dim, 4) / dim)
        turns = 2 * math.pi * torch.rand(layout.depth, layout.num_heads, 1)
        axes = turns + torch.tensor([0, math.pi / 2]).repeat_interleave(dim // 4)
        self.frequencies = nn.Parameter(
            torch.stack([axes.cos(), axes.sin()], dim=1) * lengths.repeat(2)
        )

    def constants(self) -> dict[str, Tensor]:
        """Return the coordinates, as whole numbers: a cast to half precision keeps them."""
        return {"coordinates": self.layout.coordinates()}

    def effective_frequencies(self, layer: int) -> Tensor:
        """Return the angles of a layer for one step in x and in y, ``(2, H, d/2)``.

        They are float32 at least: an angle of many turns needs more digits than half precision has.
        """
        frequencies = self.frequencies[layer]
        return frequencies.to(torch.promote_types(frequencies.dtype, torch.float32))

    def angles(self, layer: int) -> Tensor:
        """Return by how much a layer turns each position's channels, ``(N, H, d/2)``, in rad."""
        # These are m theta; the paper calls theta itself "angles".
        # No matrix product, since autocast would compute it in half precision.
        return (self.coordinates[:, :, None, None] * self.effective_frequencies(layer)).sum(1)

    def rotate(
        self, q: Tensor, k: Tensor, layer: int, permutation: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Turn each pair of channels by the angle of its token's position.

        A permutation shuffles the positions among the tokens (position, Sec. 3).
        """
        angles = self.angles(layer)
        turns = torch.stack([angles.cos(), angles.sin()])  # (2, N, H, d/2)
        if permutation is not None:
            turns = turns[:, permutation]
        cos, sin = turns.transpose(-3, -2)
        return _turned(q, cos, sin), _turned(k, cos, sin)


class AxialRoPE(RoPE):
    """RoPE of fixed frequencies: half of the pairs turn with x alone, half with y alone.

    Source: Heo et al., ECCV 2024, Sec. 3.1 ("axial frequency", arXiv 2403.13298): frequency t of
    d/4 is ``100 ** -(t / (d/4))`` radians per patch, in all layers and heads. Nothing is trained.
    """

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        del self.frequencies  # learned ones
        self.register_buffer("frequencies", self.constants()["frequencies"], persistent=False)

    def constants(self) -> dict[str, Tensor]:
        """Return the frequencies beside the coordinates."""
        dim, layers, heads = self.layout.head_dim, self.layout.depth, self.layout.num_heads
        lengths = AXIAL_THETA ** -(torch.arange(0, dim, 4) / dim)
        axes = torch.block_diag(lengths[None], lengths[None])  # (2, d/2)
        frequencies = axes[:, None].repeat(layers, 1, heads, 1)
        return {**super().constants(), "frequencies": frequencies}


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    prefix = x.shape[2] - cos.shape[-2]
    even, odd = x[:, :, prefix:].unflatten(-1, (-1, 2)).unbind(-1)
    # (even + i odd) e^(i m theta)
    turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)
    turned = turned.to(x.dtype)
    return torch.cat([x[:, :, :prefix], turned], dim=2) if prefix else turned
