"""The sizes of A-Swin and A-SwinV2, registered with timm: see `vitrail.shift.swin`."""

from __future__ import annotations

from typing import Any

from timm.models import register_model
from timm.models.swin_transformer import checkpoint_filter_fn
from timm.models.swin_transformer_v2 import checkpoint_filter_fn as checkpoint_filter_fn_v2
from torch import nn

from vitrail.shift.features import build, default_cfgs_of
from vitrail.shift.swin import AdaptiveSwin, AdaptiveSwinV2


def _swin(size: str, pretrained: bool, **kwargs: Any) -> nn.Module:
    name = f"a_swin_{size}_patch4_window7_224"
    options = {"patch_size": 4, "window_size": 7, "pretrained_filter_fn": checkpoint_filter_fn}
    return build(AdaptiveSwin, name, pretrained, **{**options, **kwargs})


_SWIN = [f"swin_{size}_patch4_window7_224" for size in ("tiny", "small", "base", "large")]
_SWINV2 = [f"swinv2_{size}_window8_256" for size in ("tiny", "small", "base")]
default_cfgs = default_cfgs_of({f"a_{plain}": plain for plain in (*_SWIN, *_SWINV2)})

TINY = {"embed_dim": 96, "depths": (2, 2, 6, 2), "num_heads": (3, 6, 12, 24)}
SMALL = {"embed_dim": 96, "depths": (2, 2, 18, 2), "num_heads": (3, 6, 12, 24)}
BASE = {"embed_dim": 128, "depths": (2, 2, 18, 2), "num_heads": (4, 8, 16, 32)}
LARGE = {"embed_dim": 192, "depths": (2, 2, 18, 2), "num_heads": (6, 12, 24, 48)}


@register_model
def a_swin_tiny_patch4_window7_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """A-Swin-T, the paper's."""
    return _swin("tiny", pretrained, **{**TINY, **kwargs})


@register_model
def a_swin_small_patch4_window7_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """A-Swin-S."""
    return _swin("small", pretrained, **{**SMALL, **kwargs})


@register_model
def a_swin_base_patch4_window7_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """A-Swin-B."""
    return _swin("base", pretrained, **{**BASE, **kwargs})


@register_model
def a_swin_large_patch4_window7_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """A-Swin-L."""
    return _swin("large", pretrained, **{**LARGE, **kwargs})


def _swinv2(size: str, pretrained: bool, **kwargs: Any) -> nn.Module:
    name = f"a_swinv2_{size}_window8_256"
    options = {"window_size": 8, "pretrained_filter_fn": checkpoint_filter_fn_v2}
    return build(AdaptiveSwinV2, name, pretrained, **{**options, **kwargs})


@register_model
def a_swinv2_tiny_window8_256(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """A-SwinV2-T, the paper's."""
    return _swinv2("tiny", pretrained, **{**TINY, **kwargs})


@register_model
def a_swinv2_small_window8_256(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """A-SwinV2-S."""
    return _swinv2("small", pretrained, **{**SMALL, **kwargs})


@register_model
def a_swinv2_base_window8_256(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """A-SwinV2-B."""
    return _swinv2("base", pretrained, **{**BASE, **kwargs})
