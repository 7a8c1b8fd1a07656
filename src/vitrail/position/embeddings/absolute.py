"""Absolute position embeddings, which are added to the tokens: APE, sinusoids, FF and CAPE.

Each class names its source.
"""

from __future__ import annotations

import math

import torch
from timm.layers import Mlp, resample_abs_pos_embed
from torch import Tensor, nn

from vitrail.position.embeddings.base import AdditiveEmbedding, Layout, Size, Weights

APE_STD = 0.02
SIN_BASE = 1e4
FF_GAMMA = 2.5
FF_MLP_RATIO = 4
CAPE_GLOBAL_SHIFT = 0.5
CAPE_LOCAL_SHIFT = 0.5
"""In units of the distance between neighbours."""
CAPE_SCALE = 1.4


class APE(AdditiveEmbedding):
    """APE: a row of learned parameters for every token (Dosovitskiy et al., ICLR 2021, Sec. 3.1).

    The `weight` is ``(N, D)``. A CLS token has row 0, which permutes with the others, as the
    paper's authors have it.
    """

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self.positions = layout.num_patches + layout.class_token
        self.weight = nn.Parameter(torch.empty(self.positions, layout.embed_dim))
        nn.init.trunc_normal_(self.weight, std=APE_STD)

    def resampled(self, weights: Weights, grid: Size | None) -> Weights:
        """Interpolate the rows of the patches, as timm does; see `PositionEmbedding`."""
        rows = resample_abs_pos_embed(
            weights["weight"].unsqueeze(0),
            new_size=list(self.layout.grid),
            old_size=list(grid) if grid else None,
            num_prefix_tokens=int(self.layout.class_token),
        )
        return {**weights, "weight": rows.squeeze(0)}

    def table(self, batch: int) -> Tensor:
        """Return the parameters."""
        return self.weight


class Sinusoid(AdditiveEmbedding):
    """Fixed sinusoids (Vaswani et al., NeurIPS 2017, Sec. 3.5, in two dimensions); none for CLS.

    The first half of the channels is of x, the second of y, sine and cosine by turns.

    Attributes:
        values: ``(N, D)``.

    Raises:
        VitrailError: D is no multiple of 4.
    """

    values: Tensor  # (N, D)

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        layout.require_divisible("sin", layout.embed_dim, by=4)

    def constants(self) -> dict[str, Tensor]:
        """Compute the sinusoids."""
        return {"values": _sinusoids_of_patches(self.layout)}

    def table(self, batch: int) -> Tensor:
        """Return the sinusoids."""
        return self.values


class TunedSinusoid(APE):
    """APE whose rows begin as the values of `Sinusoid` and are trained (position, Sec. 2).

    The row of a CLS token begins at zero.

    Raises:
        VitrailError: D is no multiple of 4.
    """

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        layout.require_divisible("sin-tuned", layout.embed_dim, by=4)
        with torch.no_grad():
            self.weight.zero_()
            self.weight[int(layout.class_token) :] = _sinusoids_of_patches(layout)


class FourierFeatures(AdditiveEmbedding):
    """FF: an MLP of D learned Fourier features (Li et al., NeurIPS 2021, Algorithm 1).

    They are sines and cosines of learned mixtures of a patch's x and y; a CLS token gets none.

    Attributes:
        frequencies: the mixtures, ``(D/2, 2)``.
        mlp: D to 4D to D channels.

    Raises:
        VitrailError: D is odd.
    """

    coordinates: Tensor

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        dim = layout.embed_dim
        layout.require_divisible("ff", dim, by=2)
        self.frequencies = nn.Linear(2, dim // 2, bias=False)
        nn.init.normal_(self.frequencies.weight, std=FF_GAMMA**-2)
        self.mlp = Mlp(dim, FF_MLP_RATIO * dim, dim)

    def constants(self) -> dict[str, Tensor]:
        """Return the patches' (x, y), ``(N, 2)``."""
        return {"coordinates": self.layout.coordinates().float()}

    def table(self, batch: int) -> Tensor:
        """Compute the embeddings."""
        phases = self.frequencies(self.coordinates)
        features = torch.cat([phases.cos(), phases.sin()], dim=-1) / math.sqrt(2 * phases.shape[-1])
        embeddings: Tensor = self.mlp(features)
        return embeddings


class CAPE(AdditiveEmbedding):
    """CAPE: sinusoids of positions in [-1, 1] (Likhomanenko et al., NeurIPS 2021, Sec. 3.2).

    Training shifts and scales the positions at random, so that a model can rely on how they differ
    but not on what they are. The patches are multiplied by sqrt(D), so that the sinusoids do not
    dominate. A permutation moves the sinusoids, never the patches. A CLS token is left unchanged.

    Attributes:
        step: between neighbours, in x and in y.
        places: (x, y) from -1 to 1, ``(N, 2)``.
        frequencies: ``(2, D/2)``, whose directions fan out and whose lengths go from 1 to 10.
        values: the sinusoids of `places`, ``(N, D)``. Computed in float32, they lose only their
            last digits where a model is cast to half precision.

    Raises:
        VitrailError: D is odd.
    """

    step: Tensor  # between neighbours, in x and in y
    places: Tensor  # (x, y) from -1 to 1, (N, 2)
    frequencies: Tensor  # (2, D/2), whose directions fan out and whose lengths go from 1 to 10
    values: Tensor  # (N, D)

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        layout.require_divisible("cape", layout.embed_dim, by=2)

    def constants(self) -> dict[str, Tensor]:
        """Compute the places and frequencies, and the sinusoids of the places."""
        height, width = self.layout.grid
        step = 2 / torch.tensor([max(width - 1, 1), max(height - 1, 1)])
        places = self.layout.coordinates() * step - 1
        turns = torch.arange(self.layout.embed_dim // 2)
        lengths = 10 ** torch.linspace(0, 1, len(turns))
        frequencies = lengths * torch.stack([turns.cos(), turns.sin()])
        values = _sinusoids(places, frequencies)
        return {"step": step, "places": places, "frequencies": frequencies, "values": values}

    def content(self, patches: Tensor) -> Tensor:
        """Scale the patches up."""
        return patches * math.sqrt(patches.shape[-1])

    def table(self, batch: int) -> Tensor:
        """Return the sinusoids, in training of positions augmented for each image."""
        if self.training:
            return _sinusoids(self._augmented(batch), self.frequencies)
        return self.values

    def _augmented(self, batch: int) -> Tensor:
        """Return places ``(batch, N, 2)``, shifted together, each on its own, and scaled."""

        def uniform(*shape: int) -> Tensor:
            return self.places.new_empty(batch, *shape).uniform_(-1, 1)

        shifted = self.places + CAPE_GLOBAL_SHIFT * uniform(1, 2)
        shifted = shifted + CAPE_LOCAL_SHIFT * self.step * uniform(self.positions, 2)
        return shifted * CAPE_SCALE ** uniform(1, 1)


def _sinusoids_of_patches(layout: Layout) -> Tensor:
    """Return sines and cosines of the patches' x, then of their y, by turns: ``(N, D)``."""
    half = layout.embed_dim // 2
    frequencies = SIN_BASE ** -(torch.arange(0, half, 2) / half)
    phases = layout.coordinates().unsqueeze(-1) * frequencies  # (N, 2, D/4)
    return torch.stack([phases.sin(), phases.cos()], dim=-1).flatten(1)


def _sinusoids(places: Tensor, frequencies: Tensor) -> Tensor:
    """Return cosines and sines of places ``(..., N, 2)`` by ``(2, D/2)``: ``(..., N, D)``."""
    phases = math.pi * (places.unsqueeze(-1) * frequencies).sum(-2)
    return torch.cat([phases.cos(), phases.sin()], dim=-1)
