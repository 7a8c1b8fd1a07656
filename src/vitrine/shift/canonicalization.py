"""Canonicalisation, a baseline that the paper lacks: roll each image to an origin of its own.

The offset is where the energy of the pixels, weighted by lines that rise over the whole circle of
each axis, is largest; it moves along with the image. A plain ViT then sees the same image whatever
the shift, so it is as invariant as the paper's models, with no module of theirs. Images of which
several offsets tie are those that repeat over the circle. What the model loses is locality: a
small change of the content (a crop, a standard shift) can move the origin across the image.
"""

from __future__ import annotations

from typing import Any

import torch
from timm.models import build_model_with_cfg, register_model
from timm.models.vision_transformer import VisionTransformer, checkpoint_filter_fn
from torch import Tensor, nn

from vitrine.shift.polyphase import roll_image, strongest, token_norms


@torch.no_grad()
def origin(images: Tensor) -> Tensor:
    """Return the offset ``(B, 2)`` of each of ``(B, C, H, W)`` that `canonical` rolls it by."""
    energies = token_norms(images.permute(0, 2, 3, 1))
    rows, columns = (_rising_lines(side, energies) for side in energies.shape[1:])
    return strongest(rows @ energies @ columns.mT)


def _rising_lines(side: int, like: Tensor) -> Tensor:
    """Return a line for each offset, which rises from 1 there to 2 around the circle: (N, N)."""
    place = torch.arange(side, device=like.device)
    return 1 + ((place - place[:, None]) % side).to(like) / side


def canonical(images: Tensor) -> Tensor:
    """Roll each of ``(B, C, H, W)`` to its origin."""
    return roll_image(images, origin(images))


class CanonicalViT(VisionTransformer):
    """timm's ViT, which sees canonical images."""

    def forward_features(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the last tokens ``(B, N, D)`` of images ``(B, 3, height, width)``."""
        return super().forward_features(canonical(x), *args, **kwargs)


@register_model
def canonical_vit_small_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """ViT-S/16 of canonical images: 22 M parameters, as many as the paper's models have."""
    size = {"patch_size": 16, "embed_dim": 384, "depth": 12, "num_heads": 6}
    model: nn.Module = build_model_with_cfg(
        CanonicalViT,
        "vit_small_patch16_224",
        pretrained,
        pretrained_filter_fn=checkpoint_filter_fn,
        **{**size, **kwargs},
    )
    return model
