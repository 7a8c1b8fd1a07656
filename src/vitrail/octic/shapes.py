"""The shapes of the paper's models, and plain ViTs of those that timm lacks (Table 1)."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence
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
    "gigantic_patch16": (1664, 48, 16, 8192, 16),  # ViT-G
    "e_patch16": (1792, 56, 16, 15360, 16),
    "22b_patch16": (6144, 36, 48, 24576, 16),
}


def register_models(
    module: str,
    model_type: type[nn.Module],
    families: Mapping[str, Mapping[str, Any]],
    shapes: Sequence[str],
    /,
    first_conv: str = "patch_embed",
    **options: Any,
) -> None:
    """Register models ``<family>_<shape>_224`` with timm, as functions of the calling `module`.

    A call stands at the module's top level with literal families and shapes, since the names are
    also read from the source. Whatever `model_type` takes is an argument of `timm.create_model`,
    and goes before the family's arguments, `options` and those of the shape.
    """
    cfg = {"crop_pct": 1.0, "fixed_input_size": True, "first_conv": first_conv}
    namespace = vars(sys.modules[module])
    for (family, given), shape in itertools.product(families.items(), shapes):
        name = f"{family}_{shape}_224"
        cfgs = generate_default_cfgs({name: {**cfg, "classifier": "head"}})
        namespace.setdefault("default_cfgs", {}).update(cfgs)
        namespace[name] = _registered(module, model_type, name, shape, {**options, **given})


def _registered(
    module: str, model_type: type[nn.Module], name: str, shape: str, options: Mapping[str, Any]
) -> Any:
    width, depth, heads, hidden, patch = SHAPES[shape]
    sizes = {"patch_size": patch, "embed_dim": width, "depth": depth, "num_heads": heads}

    def entrypoint(pretrained: bool = False, **kwargs: Any) -> nn.Module:
        given = {**sizes, "mlp_ratio": hidden / width, **options, **kwargs}
        out_indices = given.pop("out_indices", min(3, given["depth"]))
        feature_cfg = {"out_indices": out_indices, "feature_cls": "getter"}
        model: nn.Module = build_model_with_cfg(
            model_type, name, pretrained, feature_cfg=feature_cfg, **given
        )
        return model

    entrypoint.__module__, entrypoint.__name__, entrypoint.__qualname__ = module, name, name
    entrypoint.__doc__ = f"Build {name}, a `{model_type.__name__}`."
    return register_model(entrypoint)


register_models(
    __name__,
    VisionTransformer,
    {"vit": {"init_values": 1e-4, "no_embed_class": True}},  # DeiT III's layer scale and positions
    ["huge_patch16", "gigantic_patch16", "e_patch16", "22b_patch16"],
    first_conv="patch_embed.proj",
    pretrained_filter_fn=checkpoint_filter_fn,
)
