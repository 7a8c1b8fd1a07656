"""Octic linear layer: everything that commutes with the group (Sec. 3.2).

By Schur's lemma a plane of an irrep of one dimension only sees itself, and E's 2c columns [copy 1 |
copy 2] are mixed by one matrix that both rows share: 12 c c' multiply-adds where a dense layer has
64. A bias may only go where the group does nothing, to A1.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitrine.errors import VitrineError


def octic_channels(features: int) -> int:
    """Return how many channels a plane has.

    Raises:
        VitrineError: eight planes cannot share them equally.
    """
    if features % 8:
        raise VitrineError(f"octic features have {features} channels; give a multiple of 8")
    return features // 8


class OcticLinear(nn.Module):
    """Equivariant linear layer, ``(8, B, N, c)`` to ``(8, B, N, c')``.

    Attributes:
        weight: ``(4, c', c)`` of A1, A2, B1, B2.
        weight_e: ``(2c', 2c)`` of E; rows and columns are [copy 1 | copy 2].
        bias: ``(c')`` of A1, or None.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        """Build it with truncated normal weights (std 0.02) and a bias of zero.

        Args:
            in_features: C, channels of all planes together.
            out_features: C'.
            bias: whether A1 has one.

        Raises:
            VitrineError: C or C' is no multiple of 8.
        """
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        c, c_out = octic_channels(in_features), octic_channels(out_features)
        self.weight = nn.Parameter(torch.empty(4, c_out, c))
        self.weight_e = nn.Parameter(torch.empty(2 * c_out, 2 * c))
        self.bias = nn.Parameter(torch.empty(c_out)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise as the paper does."""
        nn.init.trunc_normal_(self.weight, std=0.02)
        nn.init.trunc_normal_(self.weight_e, std=0.02)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Apply it to ``(8, B, N, c)``."""
        shape = x.shape[1:3]
        c, c_out = self.in_features // 8, self.out_features // 8
        planes = x.flatten(1, 2)
        lines = torch.bmm(planes[:4], self.weight.mT)
        if self.bias is not None:
            lines[0] += self.bias
        copy_1, copy_2 = planes[4:6].flatten(0, 1), planes[6:8].flatten(0, 1)
        pairs = [
            torch.addmm(copy_1 @ w[:, :c].mT, copy_2, w[:, c:].mT).view(2, -1, c_out)
            for w in self.weight_e.split(c_out)
        ]
        return torch.cat([lines, *pairs]).unflatten(1, shape)

    def extra_repr(self) -> str:
        """Show the sizes, as `nn.Linear` does."""
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"
