"""Auto-PE (position, Sec. 4, App. B): a learned factor on a position embedding.

One number makes all of position count more or less, so that unlearning it is one step away. It is
unconstrained, and meant to be trained at a rate of its own, 0.1 (`optimizer.group_lr`).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitrail.position.embeddings.base import AdditiveEmbedding, Layout, Size, Weights
from vitrail.position.embeddings.rope import RoPE

GAMMA_0 = 0.5


class AutoPE(AdditiveEmbedding):
    """``gamma P`` of an additive embedding P (position, Eq. 6, Sec. 5.6)."""

    def __init__(self, embedding: type[AdditiveEmbedding], layout: Layout) -> None:
        super().__init__(layout)
        self.embedding = embedding(layout)
        self.positions = self.embedding.positions
        self.gamma = nn.Parameter(torch.tensor(GAMMA_0))

    def resampled(self, weights: Weights, grid: Size | None) -> Weights:
        """Leave it to the embedding."""
        prefix = "embedding."
        own = {n.removeprefix(prefix): w for n, w in weights.items() if n.startswith(prefix)}
        resampled = self.embedding.resampled(own, grid)
        return {**weights, **{prefix + name: weight for name, weight in resampled.items()}}

    def content(self, patches: Tensor) -> Tensor:
        """Leave content to the embedding."""
        return self.embedding.content(patches)

    def table(self, batch: int) -> Tensor:
        """Return the embedding's own table times gamma."""
        return self.gamma * self.embedding.table(batch)


class AutoRoPE(RoPE):
    """RoPE whose angles are multiplied by a factor for each layer (position, Eq. 11-12).

    It is the frequencies that are multiplied: the angles stay linear in the position, and attention
    relative, whatever gamma, ``(layers,)``.
    """

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self.gamma = nn.Parameter(torch.full((layout.depth,), GAMMA_0))

    def effective_frequencies(self, layer: int) -> Tensor:
        """Return the angles of a layer for one step, gamma included."""
        return self.gamma[layer] * super().effective_frequencies(layer)


class AutoWrappedRoPE(AutoRoPE):
    """Auto-RoPE that multiplies angles after wrapping them to (-pi, pi], as in the published code.

    Where an angle wraps, its multiple jumps: attention is not relative any more, unless gamma is a
    whole number. It is the embedding ``auto-rope-as-published``.
    """

    def angles(self, layer: int) -> Tensor:
        """Return gamma times the wrapped angles of RoPE."""
        plain = (self.coordinates[:, :, None, None] * self.frequencies[layer]).sum(1)
        return self.gamma[layer] * torch.atan2(plain.sin(), plain.cos())
