"""Registers the paper's models with timm, by timm's rules for names.

`octic_d8_vit_large_patch16_224`, and so on for the families d8, h8, i8 (`vit`) and d2, h2 (`flip`)
and the sizes small, base, large and huge; at patch 14 or 16 the huge one. The three widest shapes
of Table 1 exist as d8 and, where timm has none, as a plain ViT with DeiT III's layer scale.
Whatever a constructor takes is an argument of `timm.create_model`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from vitrine.octic.flip import FlipVisionTransformer
from vitrine.octic.vit import OcticVisionTransformer

# Width, depth, heads, MLP width and patch (Sec. E.4, Table 1).
_SIZES = {
    "small_patch16": (384, 12, 6, 1536, 16),
    "base_patch16": (768, 12, 12, 3072, 16),
    "large_patch16": (1024, 24, 16, 4096, 16),
    "huge_patch14": (1280, 32, 16, 5120, 14),
    "huge_patch16": (1280, 32, 16, 5120, 16),
}
_WIDE_SIZES = {
    "gigantic_patch16": (1664, 48, 16, 8192, 16),  # ViT-G
    "e_patch16": (1792, 56, 16, 15360, 16),
    "22b_patch16": (6144, 36, 48, 24576, 16),
}
# Prefix, type, arguments and sizes of each family.
_FAMILIES: list[tuple[str, type[nn.Module], dict[str, Any], list[str]]] = [
    ("octic_d8_vit", OcticVisionTransformer, {"family": "d8"}, [*_SIZES, *_WIDE_SIZES]),
    ("octic_h8_vit", OcticVisionTransformer, {"family": "h8"}, [*_SIZES]),
    ("octic_i8_vit", OcticVisionTransformer, {"family": "i8"}, [*_SIZES]),
    ("d2_vit", FlipVisionTransformer, {"family": "d2"}, [*_SIZES]),
    ("h2_vit", FlipVisionTransformer, {"family": "h2"}, [*_SIZES]),
    (
        "vit",
        VisionTransformer,
        {"init_values": 1e-4, "no_embed_class": True},
        ["huge_patch16", *_WIDE_SIZES],
    ),
]


def _shape(size: str) -> dict[str, Any]:
    width, depth, heads, hidden, patch = (_SIZES | _WIDE_SIZES)[size]
    return {
        "patch_size": patch,
        "embed_dim": width,
        "depth": depth,
        "num_heads": heads,
        "mlp_ratio": hidden / width,
    }


def _cfg(model_type: type[nn.Module]) -> dict[str, Any]:
    plain = model_type is VisionTransformer
    return {
        "url": "",
        "num_classes": 1000,
        "input_size": (3, 224, 224),
        "pool_size": None,
        "crop_pct": 1.0,
        "interpolation": "bicubic",
        "fixed_input_size": True,
        "mean": IMAGENET_DEFAULT_MEAN,
        "std": IMAGENET_DEFAULT_STD,
        "first_conv": "patch_embed.proj" if plain else "patch_embed",
        "classifier": "head",
    }


def _entrypoint(
    name: str, model_type: type[nn.Module], defaults: dict[str, Any]
) -> Callable[..., nn.Module]:
    def create(pretrained: bool = False, **kwargs: Any) -> nn.Module:
        model: nn.Module = build_model_with_cfg(
            model_type, name, pretrained, **{**defaults, **kwargs}
        )
        return model

    create.__name__ = create.__qualname__ = name
    create.__doc__ = f"{model_type.__name__} with {defaults}."
    return create


_MODELS = {
    f"{prefix}_{size}_224": (model_type, {**arguments, **_shape(size)})
    for prefix, model_type, arguments, sizes in _FAMILIES
    for size in sizes
}

default_cfgs = generate_default_cfgs({name: _cfg(kind) for name, (kind, _) in _MODELS.items()})

for _name, (_kind, _defaults) in _MODELS.items():
    globals()[_name] = register_model(_entrypoint(_name, _kind, _defaults))
