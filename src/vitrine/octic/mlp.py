"""Octic MLP (Sec. 3.3): two octic linear layers about an octic GELU."""

from __future__ import annotations

from torch import Tensor, nn

from vitrine.octic.activation import OcticGELU
from vitrine.octic.dropout import OcticDropout
from vitrine.octic.linear import OcticLinear


class OcticMlp(nn.Module):
    """Equivariant MLP of ``(8, B, N, c)``."""

    def __init__(self, in_features: int, hidden_features: int, drop: float = 0.0) -> None:
        """Build it with random weights.

        Args:
            in_features: C, channels of all planes together, in and out.
            hidden_features: channels between.
            drop: dropout after the activation and of the output.

        Raises:
            VitrineError: either number of channels is no multiple of 8.
        """
        super().__init__()
        self.fc1 = OcticLinear(in_features, hidden_features)
        self.act = OcticGELU()
        self.drop1 = OcticDropout(drop)
        self.fc2 = OcticLinear(hidden_features, in_features)
        self.drop2 = OcticDropout(drop)

    def forward(self, x: Tensor) -> Tensor:
        """Apply it to every token."""
        return self.drop2(self.fc2(self.drop1(self.act(self.fc1(x)))))
