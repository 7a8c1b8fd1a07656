"""CAPE, continuous augmented position embedding (Likhomanenko et al., NeurIPS 2021, Sec. 3.2).

Sinusoids of continuous positions, which training shifts and scales at random, so that a model can
rely on how positions differ but not on what they are. Content is scaled up to be heard beside them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vitrine.position.embeddings.base import AdditiveEmbedding, Layout

GLOBAL_SHIFT = 0.5
LOCAL_SHIFT = 0.5
"""In units of the distance between neighbours."""
SCALE = 1.4


class CAPE(AdditiveEmbedding):
    """Sinusoids of the patches' positions in [-1, 1], beside sqrt(D) times the patches.

    A CLS token gets none of it. A permutation moves the sinusoids, never the content.

    Attributes:
        step: between neighbours, in x and in y.
        places: (x, y) from -1 to 1, ``(N, 2)``.
        frequencies: ``(2, D/2)``, whose directions fan out and whose lengths go from 1 to 10.
    """

    step: Tensor
    places: Tensor
    frequencies: Tensor

    def __init__(self, layout: Layout) -> None:
        """Raises VitrineError where D is odd."""
        super().__init__(layout)
        layout.require_divisible("cape", layout.embed_dim, by=2)
        height, width = layout.grid
        step = 2 / torch.tensor([max(width - 1, 1), max(height - 1, 1)])
        self.register_buffer("step", step, persistent=False)
        self.register_buffer("places", layout.coordinates() * step - 1, persistent=False)
        turns = torch.arange(layout.embed_dim // 2)
        lengths = 10 ** torch.linspace(0, 1, len(turns))
        self.register_buffer(
            "frequencies", lengths * torch.stack([turns.cos(), turns.sin()]), persistent=False
        )

    def content(self, patches: Tensor) -> Tensor:
        """Scale the patches up."""
        return patches * math.sqrt(patches.shape[-1])

    def table(self, batch: int) -> Tensor:
        """Compute the sinusoids, in training of positions augmented for each image."""
        places = self._augmented(batch) if self.training else self.places
        phases = math.pi * (places.unsqueeze(-1) * self.frequencies).sum(-2)
        return torch.cat([phases.cos(), phases.sin()], dim=-1)

    def _augmented(self, batch: int) -> Tensor:
        """Return places ``(batch, N, 2)``, shifted together, each on its own, and scaled."""

        def uniform(*shape: int) -> Tensor:
            return self.places.new_empty(batch, *shape).uniform_(-1, 1)

        shifted = self.places + GLOBAL_SHIFT * uniform(1, 2)
        shifted = shifted + LOCAL_SHIFT * self.step * uniform(self.positions, 2)
        return shifted * SCALE ** uniform(1, 1)
