"""GELU of octic features (Sec. 3.3): a pointwise function commutes with permutations only.

In the regular representation the group permutes the eight planes, so the activation transforms the
features there, applies the exact GELU and transforms back.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from vitrine.octic.features import to_isotypic, to_regular


def octic_gelu(x: Tensor) -> Tensor:
    """Apply the exact GELU to ``(8, ...)`` in the regular representation."""
    return to_isotypic(functional.gelu(to_regular(x)))


class OcticGELU(nn.Module):
    """`octic_gelu` as a layer."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply it to ``(8, B, N, c)``."""
        return octic_gelu(x)

    def operations(self, x: Tensor) -> int:
        """Count GELU as 8, and of either fast transform 24 additions and 8 products of 8 planes."""
        return (8 + 2 * 4) * x.numel()
