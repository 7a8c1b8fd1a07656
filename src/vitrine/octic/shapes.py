"""The shapes of the paper's models, and plain ViTs of those that timm lacks (Table 1).

`build` makes a model of any family by timm's rules: whatever the family's constructor takes is an
argument of `timm.create_model`.
"""

from __future__ import annotations

from typing import Any

from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.vision_transformer import VisionTransformer, checkpoint_filter_fn
from torch import nn

# Width, depth, heads, MLP width and patch (Sec. E.4, Table 1).
SHAPES = {
    "small_patch16": (384, 12, 6, 1536, 16),
    "base_patch16": (768, 12, 12, 3072, 16),
    "large_patch16": (1024, 24, 16, 4096, 16),
    "huge_patch14": (1280, 32, 16, 5120, 14),
    "huge_patch16": (1280, 32, 16, 5120, 16),
}
WIDE_SHAPES = {
    "gigantic_patch16": (1664, 48, 16, 8192, 16),  # ViT-G
    "e_patch16": (1792, 56, 16, 15360, 16),
    "22b_patch16": (6144, 36, 48, 24576, 16),
}


def build(
    model_type: type[nn.Module], prefix: str, shape: str, pretrained: bool, **kwargs: Any
) -> nn.Module:
    """Build the model registered as ``<prefix>_<shape>_224``; `kwargs` go before the shape's."""
    width, depth, heads, hidden, patch = (SHAPES | WIDE_SHAPES)[shape]
    of_shape = {"patch_size": patch, "embed_dim": width, "depth": depth, "num_heads": heads}
    options = {**of_shape, "mlp_ratio": hidden / width, **kwargs}
    feature_cfg = {
        "out_indices": options.pop("out_indices", min(3, options["depth"])),
        "feature_cls": "getter",
    }
    model: nn.Module = build_model_with_cfg(
        model_type, f"{prefix}_{shape}_224", pretrained, feature_cfg=feature_cfg, **options
    )
    return model


def default_cfg(first_conv: str = "patch_embed") -> dict[str, Any]:
    """Return what timm records of a model, where it differs from timm's defaults."""
    usual = {"crop_pct": 1.0, "fixed_input_size": True, "classifier": "head"}
    return {**usual, "first_conv": first_conv}


_NAMES = [f"vit_{shape}_224" for shape in ("huge_patch16", *WIDE_SHAPES)]
default_cfgs = generate_default_cfgs(dict.fromkeys(_NAMES, default_cfg("patch_embed.proj")))


def _vit(shape: str, pretrained: bool, **kwargs: Any) -> nn.Module:
    """A plain ViT with DeiT III's layer scale and positions."""
    options = {
        "init_values": 1e-4,
        "no_embed_class": True,
        "pretrained_filter_fn": checkpoint_filter_fn,
        **kwargs,
    }
    return build(VisionTransformer, "vit", shape, pretrained, **options)


@register_model
def vit_huge_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """ViT-H/16."""
    return _vit("huge_patch16", pretrained, **kwargs)


@register_model
def vit_gigantic_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """ViT-G/16."""
    return _vit("gigantic_patch16", pretrained, **kwargs)


@register_model
def vit_e_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """ViT-e/16."""
    return _vit("e_patch16", pretrained, **kwargs)


@register_model
def vit_22b_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """ViT-22B/16."""
    return _vit("22b_patch16", pretrained, **kwargs)
