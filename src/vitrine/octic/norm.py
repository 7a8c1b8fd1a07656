"""Octic layer norm and layer scale (Sec. 3.3).

A mean may only be removed within an irrep: over the channels of A1, A2, B1 and B2, and over the 2c
columns of each row of E. One scalar divides all, the norm over all irreps, which the group does not
change. Scales are shared by the two rows of E, and only A1 has a shift.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from vitrine.errors import VitrineError, did_you_mean
from vitrine.octic.features import per_plane
from vitrine.octic.linear import octic_channels

NormConvention = Literal["total", "published"]


class OcticLayerNorm(nn.Module):
    """Equivariant layer norm of ``(8, B, N, c)``.

    Attributes:
        weight: ``(6, c)`` of A1, A2, B1, B2 and E's two copies.
        bias: ``(c)`` of A1.
    """

    def __init__(self, dim: int, eps: float = 1e-6, convention: NormConvention = "total") -> None:
        """Build it with scales of one and a shift of zero.

        Args:
            dim: C, channels of all planes together.
            eps: added to the sum of the planes' variances.
            convention: "total" divides by the norm over all irreps, as the paper's text does;
                "published" counts E a quarter of that, as the published code does.

        Raises:
            VitrineError: `dim` is no multiple of 8, or the convention is unknown.
        """
        super().__init__()
        if convention not in get_args(NormConvention):
            known = did_you_mean(convention, get_args(NormConvention))
            raise VitrineError(f"unknown norm convention '{convention}'{known}")
        c = octic_channels(dim)
        self.eps, self.convention = eps, convention
        self.weight = nn.Parameter(torch.ones(6, c))
        self.bias = nn.Parameter(torch.zeros(c))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``(8, B, N, c)``, each token by itself."""
        dtype = x.dtype
        if dtype in (torch.bfloat16, torch.float16):
            x = x.float()
        mean = x.mean(-1, keepdim=True)
        rows = (mean[4:6] + mean[6:8]) / 2
        x = x - torch.cat([mean[:4], rows, rows])
        squares = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square()
        lines, pairs = squares[:4].sum(0), squares[4:].sum(0)
        if self.convention == "published":
            pairs = pairs / 4
        variance = (lines + pairs) / x.shape[-1]
        # An eighth of it, so that a channel's variance becomes one, as in a dense layer norm.
        x = x * ((variance + self.eps) / 8).rsqrt()
        shift = functional.pad(self.bias[None], (0, 0, 0, 7))[:, None, None]
        x = torch.addcmul(shift, x, per_plane(self.weight)[:, None, None])
        return x.to(dtype)

    def operations(self, x: Tensor) -> int:
        """Count a mean, a difference, a quotient and a scale, and A1's shift."""
        return 33 * x.numel() // 8

    def extra_repr(self) -> str:
        """Show what the constructor was given."""
        return f"{8 * self.bias.numel()}, eps={self.eps}, convention={self.convention!r}"


class OcticLayerScale(nn.Module):
    """Equivariant layer scale of ``(8, B, N, c)``.

    Attributes:
        gamma: ``(6, c)`` of A1, A2, B1, B2 and E's two copies.
    """

    def __init__(self, dim: int, init_values: float = 1e-5) -> None:
        """Build it.

        Args:
            dim: C, channels of all planes together.
            init_values: of every scale.

        Raises:
            VitrineError: `dim` is no multiple of 8.
        """
        super().__init__()
        self.gamma = nn.Parameter(torch.full((6, octic_channels(dim)), float(init_values)))

    def forward(self, x: Tensor) -> Tensor:
        """Scale ``(8, B, N, c)``."""
        return x * per_plane(self.gamma)[:, None, None]
