"""The shapes of the paper's models, and plain ViTs of the shapes that timm lacks (Table 1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.vision_transformer import VisionTransformer, checkpoint_filter_fn
from torch import nn

# Width, depth, heads, hidden width of the MLP, and side of a patch in pixels (Sec. E.4, Table 1).
SHAPES = {
    "small_patch16": (384, 12, 6, 1536, 16),
    "base_patch16": (768, 12, 12, 3072, 16),
    "large_patch16": (1024, 24, 16, 4096, 16),
    "huge_patch14": (1280, 32, 16, 5120, 14),
    "huge_patch16": (1280, 32, 16, 5120, 16),
    "gigantic_patch16": (1664, 48, 16, 8192, 16),  # ViT-G
    "e_patch16": (1792, 56, 16, 15360, 16),
    "22b_patch16": (6144, 36, 48, 24576, 16),
}
TRAINED = ("small_patch16", "base_patch16", "large_patch16", "huge_patch14", "huge_patch16")
WIDEST = ("gigantic_patch16", "e_patch16", "22b_patch16")

# Entries of timm's pretrained config of a model that differ from timm's defaults.
CFG = {
    "crop_pct": 1.0,
    "fixed_input_size": True,
    "first_conv": "patch_embed",
    "classifier": "head",
}
TIMM_CFG = {**CFG, "first_conv": "patch_embed.proj"}  # of a model with timm's patch embedding


def build(
    model_type: type[nn.Module],
    name: str,
    shape: str,
    pretrained: bool,
    options: Mapping[str, Any],
    /,
    **kwargs: Any,
) -> nn.Module:
    """Build the registered model `name`, a `model_type` of one of `SHAPES`.

    `kwargs` are those of `timm.create_model`, or arguments of `model_type`. They override
    `options`, and `options` override the shape's widths and depth.
    """
    width, depth, heads, hidden, patch = SHAPES[shape]
    sizes = {"patch_size": patch, "embed_dim": width, "depth": depth, "num_heads": heads}
    given = {**sizes, "mlp_ratio": hidden / width, **options, **kwargs}
    out_indices = given.pop("out_indices", min(3, given["depth"]))
    feature_cfg = {"out_indices": out_indices, "feature_cls": "getter"}
    model: nn.Module = build_model_with_cfg(
        model_type, name, pretrained, feature_cfg=feature_cfg, **given
    )
    return model


_VIT = [f"vit_{shape}_224" for shape in ("huge_patch16", *WIDEST)]
default_cfgs = generate_default_cfgs(dict.fromkeys(_VIT, TIMM_CFG))


def _vit(shape: str, pretrained: bool, **kwargs: Any) -> nn.Module:
    """Build timm's ViT with DeiT III's layer scale and positions."""
    options = {
        "init_values": 1e-4,
        "no_embed_class": True,
        "pretrained_filter_fn": checkpoint_filter_fn,
    }
    return build(VisionTransformer, f"vit_{shape}_224", shape, pretrained, options, **kwargs)


@register_model
def vit_huge_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """ViT-H/16, timm's."""
    return _vit("huge_patch16", pretrained, **kwargs)


@register_model
def vit_gigantic_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """ViT-G/16, timm's."""
    return _vit("gigantic_patch16", pretrained, **kwargs)


@register_model
def vit_e_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """ViT-e/16, timm's."""
    return _vit("e_patch16", pretrained, **kwargs)


@register_model
def vit_22b_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """ViT-22B/16, timm's."""
    return _vit("22b_patch16", pretrained, **kwargs)
