"""Fixed sinusoids of both coordinates (Vaswani et al., NeurIPS 2017, Sec. 3.5, in two dimensions).

The first half of the channels is of x, the second of y, sine and cosine by turns.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vitrine.position.embeddings.base import AdditiveEmbedding, Layout

BASE = 1e4


class Sinusoid(AdditiveEmbedding):
    """Sinusoids, the same for good; a CLS token gets none.

    Attributes:
        values: ``(N, D)``.
    """

    values: Tensor

    def __init__(self, layout: Layout) -> None:
        """Raises VitrineError where D is no multiple of 4."""
        super().__init__(layout)
        layout.require_divisible("sin", layout.embed_dim, by=4)
        half = layout.embed_dim // 2
        frequencies = BASE ** -(torch.arange(0, half, 2) / half)
        phases = layout.coordinates().unsqueeze(-1) * frequencies  # (N, 2, D/4)
        waves = torch.stack([phases.sin(), phases.cos()], dim=-1)
        self.register_buffer("values", waves.flatten(1), persistent=False)

    def table(self, batch: int) -> Tensor:
        """Return the sinusoids."""
        return self.values
