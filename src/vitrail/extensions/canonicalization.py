"""Canonicalisation, a baseline that the paper lacks: roll each image to an origin of its own.

The origin is chosen such that the energy of the pixels is in the middle: it maximises the sum of
the energy times one cosine bump along each axis; `tie_break_scores` decides ties. The origin moves
with the image, so a plain ViT gets the same input for all circular shifts, except for images that
equal a shift of themselves.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from timm.models import build_model_with_cfg, register_model
from timm.models.vision_transformer import VisionTransformer, checkpoint_filter_fn
from torch import Tensor, nn

from vitrail.shift.certificate import gamma_n, places_error, tie_break_margin
from vitrail.shift.features import default_cfgs_of
from vitrail.shift.geometry import roll_image
from vitrail.shift.polyphase import break_ties, strongest, tie_break_scores, to_float64, token_norms


@torch.no_grad()
def origin(images: Tensor) -> Tensor:
    """Return the offset ``(B, 2)`` by which `canonical` rolls each image of ``(B, C, H, W)``.

    It is computed in float64 if the device has it, as adjacent offsets have similar scores.
    """
    energies = _energies(images)
    scores = break_ties(_scores(energies), tie_break_scores(energies))
    return strongest(scores)


def _energies(images: Tensor) -> Tensor:
    return to_float64(token_norms(images.permute(0, 2, 3, 1)))


def _scores(energies: Tensor) -> Tensor:
    rows, columns = (_bumps(side, energies) for side in energies.shape[1:])
    return rows @ energies @ columns.mT


def _bumps(side: int, like: Tensor) -> Tensor:
    """Return for each offset a cosine bump, from near 0 there to 2 half a side away: (N, N)."""
    place = torch.arange(side, device=like.device)
    turn = ((place - place[:, None]) % side + 0.5).to(like) / side
    return 1 - torch.cos(2 * math.pi * turn)


@torch.fx.wrap  # one node of a traced graph
def canonical(images: Tensor) -> Tensor:
    """Roll each of ``(B, C, H, W)`` to its origin."""
    return roll_image(images, origin(images))


class Canonical(nn.Module):
    """`canonical`, as a module that `vitrail.measures.selection_margins` can watch."""

    def forward(self, images: Tensor) -> Tensor:
        """Roll each of ``(B, C, H, W)`` to its origin."""
        return canonical(images)

    @torch.no_grad()
    def margin(self, images: Tensor) -> tuple[Tensor, bool]:
        """Return the margin ``(B,)`` of the origin, and True: it is an anchor."""
        energies = _energies(images)
        scores = _scores(energies)
        error = gamma_n(sum(energies.shape[1:]) + 2, energies.dtype) * scores.amax(dim=(1, 2))
        return tie_break_margin(
            scores, error, tie_break_scores(energies), places_error(energies)
        ), True


class CanonicalViT(VisionTransformer):
    """timm's ViT on canonical images."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.canonical = Canonical()

    def forward_features(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the last tokens ``(B, N, D)`` of images ``(B, 3, height, width)``."""
        return super().forward_features(self.canonical(x), *args, **kwargs)

    def forward_intermediates(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Return timm's result for the canonical images."""
        return super().forward_intermediates(self.canonical(x), *args, **kwargs)


NAME = "canonical_vit_small_patch16_224"
default_cfgs = default_cfgs_of({NAME: "vit_small_patch16_224"})


@register_model
def canonical_vit_small_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """Make ViT-S/16 on canonical images: 22 M parameters, about as many as the paper's models."""
    options = {"patch_size": 16, "embed_dim": 384, "depth": 12, "num_heads": 6, **kwargs}
    out_indices = options.pop("out_indices", min(3, options["depth"]))
    model: nn.Module = build_model_with_cfg(
        CanonicalViT,
        NAME,
        pretrained,
        pretrained_filter_fn=checkpoint_filter_fn,
        feature_cfg={"out_indices": out_indices, "feature_cls": "getter"},
        **options,
    )
    return model
