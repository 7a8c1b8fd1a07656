"""Dropout and stochastic depth of octic features, with masks that the group does not see."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from vitrine.octic.features import per_plane


class OcticDropout(nn.Dropout):
    """Dropout of ``(8, B, N, c)`` whose mask the two rows of E share."""

    def forward(self, x: Tensor) -> Tensor:
        """Drop entries in training, scaling the others up."""
        if not self.training or self.p == 0:
            return x
        return x * per_plane(functional.dropout(torch.ones_like(x[:6]), self.p))


class OcticDropPath(nn.Module):
    """Stochastic depth of ``(8, B, N, c)``: a sample keeps all of its planes or none."""

    def __init__(self, drop_prob: float = 0.0) -> None:
        """Build it; `drop_prob` is how likely a sample loses the branch in training."""
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: Tensor) -> Tensor:
        """Drop samples in training, scaling the others up."""
        if not self.training or self.drop_prob == 0:
            return x
        return x * functional.dropout(x.new_ones(x.shape[1], 1, 1), self.drop_prob)

    def extra_repr(self) -> str:
        """Show what the constructor was given."""
        return f"drop_prob={self.drop_prob}"
