"""Registers the paper's ViT with timm, as `position_vit`; `vit` says what arguments it takes."""

from __future__ import annotations

from typing import Any

from timm.models import build_model_with_cfg, generate_default_cfgs, register_model

from vitrine.position.vit import PositionViT

default_cfgs = generate_default_cfgs(
    {
        "position_vit": {
            "url": "",
            "num_classes": 10,
            "input_size": (3, 32, 32),
            "pool_size": None,
            "crop_pct": 1.0,
            "interpolation": "bicubic",
            "fixed_input_size": True,
            "mean": (0.5, 0.5, 0.5),
            "std": (0.5, 0.5, 0.5),
            "first_conv": "patch_embed",
            "classifier": "head",
        }
    }
)


@register_model
def position_vit(pretrained: bool = False, **kwargs: Any) -> PositionViT:
    """Make the ViT of Appx. G: 9 layers of 192 channels and 12 heads, for images of 32 pixels."""
    model: PositionViT = build_model_with_cfg(PositionViT, "position_vit", pretrained, **kwargs)
    return model
