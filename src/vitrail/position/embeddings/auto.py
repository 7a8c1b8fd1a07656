"""Auto-PE (position, Sec. 4, App. B): a learned factor on a position embedding.

A learned number gamma scales the whole position embedding, so a model can weaken position by
changing a single parameter (Auto-RoPE has one for each layer, or a single one for all). It is
unconstrained, and trained at a learning rate of its own, 0.1 (Sec. 4; `group_lr` of ``*.gamma`` in
``configs/papers/position/recipes.yaml``). Two other files complete the method: `base` adds the
scaled embedding to the tokens (Auto-APE), and `rope` turns queries and keys by the scaled angles
(Auto-RoPE). The model, `vitrail.position.vit`, adds an embedding once, before its first layer, and
turns queries and keys in each layer, whose number it passes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitrail.position.embeddings.base import AdditiveEmbedding, Layout, Size, Weights
from vitrail.position.embeddings.rope import RoPE

GAMMA_0 = 0.5
"""Initial gamma (position, Sec. 4)."""


class AutoPE(AdditiveEmbedding):
    """``gamma P`` of an additive embedding P (position, Eq. 6, Sec. 5.6).

    Beyond Eq. 6, ``auto-cape`` multiplies the patches by sqrt(D), as CAPE does; gamma does not
    scale them.
    """

    def __init__(self, embedding: type[AdditiveEmbedding], layout: Layout) -> None:
        super().__init__(layout)
        self.embedding = embedding(layout)
        self.positions = self.embedding.positions
        self.gamma = nn.Parameter(torch.tensor(GAMMA_0))

    def resampled(self, weights: Weights, grid: Size | None) -> Weights:
        """Resample the weights of the embedding that is scaled."""
        prefix = "embedding."
        own = {n.removeprefix(prefix): w for n, w in weights.items() if n.startswith(prefix)}
        resampled = self.embedding.resampled(own, grid)
        return {**weights, **{prefix + name: weight for name, weight in resampled.items()}}

    def content(self, patches: Tensor) -> Tensor:
        """Return the content of the embedding that is scaled."""
        return self.embedding.content(patches)

    def table(self, batch: int) -> Tensor:
        """Return gamma times the embedding's own table (`AdditiveEmbedding.add` adds it)."""
        return self.gamma * self.embedding.table(batch)  # gamma P (Eq. 6)


class AutoRoPE(RoPE):
    """RoPE whose angles are multiplied by a factor for each layer (position, Eq. 11-12).

    The frequencies are multiplied: the queries (Eq. 11) and keys (Eq. 12) of a position m turn by
    m (gamma theta), as `RoPE.rotate` does with m theta. So the angle stays linear in the position,
    and attention depends on relative position alone, whatever gamma is. `gamma`, ``(layers,)``, has
    one for each layer; with `shared` a single one, ``()``, for all layers: the embedding
    ``auto-rope-shared``, which the paper tried first (position, App. I).
    """

    def __init__(self, layout: Layout, shared: bool = False) -> None:
        super().__init__(layout)
        self.gamma = nn.Parameter(torch.full(() if shared else (layout.depth,), GAMMA_0))

    def factor(self, layer: int) -> Tensor:
        """Return gamma of a layer, ``()``."""
        return self.gamma.expand(self.layout.depth)[layer]

    def effective_frequencies(self, layer: int) -> Tensor:
        """Return the angles of a layer for one step, gamma included."""
        return self.factor(layer) * super().effective_frequencies(layer)  # gamma theta (Eq. 11-12)


class AutoWrappedRoPE(AutoRoPE):
    """Auto-RoPE that multiplies angles after wrapping them to (-pi, pi], as in the authors' code.

    Gamma times the wrapped angle is not continuous in the position, so attention is no longer a
    function of the relative position, unless gamma is a whole number. It is registered as
    ``auto-rope-as-published`` and reproduces the authors' code; `AutoRoPE` follows the text
    (position, Eq. 11-12).
    """

    def angles(self, layer: int) -> Tensor:
        """Return gamma times the wrapped angles of RoPE."""
        frequencies = RoPE.effective_frequencies(self, layer)
        plain = (self.coordinates[:, :, None, None] * frequencies).sum(1)
        return self.factor(layer) * torch.atan2(plain.sin(), plain.cos())
