"""MViTv2 (Li et al., CVPR 2022) as the paper's baselines: timm's models with another padding.

`adaptive_mvitv2`, which adds the paper's modules, takes its configuration and sizes from here. The
baselines have a file of their own so that no change of the paper's modules can change them.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal

from timm.models import build_model_with_cfg, register_model
from timm.models.mvitv2 import MultiScaleVit, MultiScaleVitCfg, checkpoint_filter_fn
from torch import nn

from vitrail.shift.features import default_cfgs_of

TINY = {"depths": (1, 2, 5, 2)}
SMALL = {"depths": (1, 2, 11, 2)}
BASE = {"depths": (2, 3, 16, 3)}
LARGE = {"depths": (2, 6, 36, 4), "embed_dim": 144, "num_heads": 2, "expand_attn": False}


def configured(options: dict[str, Any]) -> tuple[MultiScaleVitCfg, dict[str, Any]]:
    """Split options into timm's configuration and the rest."""
    names = {field.name for field in fields(MultiScaleVitCfg)}
    cfg = MultiScaleVitCfg(**{name: value for name, value in options.items() if name in names})
    return cfg, {name: value for name, value in options.items() if name not in names}


def _padded(padding: Literal["zeros", "circular"], pretrained: bool, **options: Any) -> nn.Module:
    cfg, kwargs = configured(options)
    out_indices = kwargs.pop("out_indices", len(cfg.depths))
    model: nn.Module = build_model_with_cfg(
        MultiScaleVit,
        f"mvitv2_tiny_{padding}",
        pretrained,
        model_cfg=cfg,
        pretrained_filter_fn=checkpoint_filter_fn,
        feature_cfg={"out_indices": out_indices, "feature_cls": "getter"},
        **kwargs,
    )
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.padding_mode = padding
    return model


default_cfgs = default_cfgs_of(
    {f"mvitv2_tiny_{padding}": "mvitv2_tiny" for padding in ("circular", "zeros")}
)


@register_model
def mvitv2_tiny_circular(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """MViTv2-T with circular convolutions: the paper's baseline under circular shifts.

    Takes the fields of timm's `MultiScaleVitCfg`, too.
    """
    return _padded("circular", pretrained, **{**TINY, **kwargs})


@register_model
def mvitv2_tiny_zeros(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """MViTv2-T as timm's `mvitv2_tiny`; takes the fields of timm's `MultiScaleVitCfg`, too."""
    return _padded("zeros", pretrained, **{**TINY, **kwargs})
