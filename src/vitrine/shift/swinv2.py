"""A-SwinV2: SwinV2 with the paper's modules, as `vitrine.shift.swin` has them for Swin.

Two things differ. SwinV2 normalises the output of merging, so energies are those before that norm.
And its windows are even: 2 divides 8, so the grid of windows alone settles the phase of the next
merging, and A-PMerge is redundant (its ablation loses nothing).
"""

from __future__ import annotations

from typing import Any

from timm.models import register_model
from timm.models.swin_transformer_v2 import (
    SwinTransformerV2,
    SwinTransformerV2Block,
    checkpoint_filter_fn,
)
from torch import nn

from vitrine.shift.features import build
from vitrine.shift.swin import BASE, SMALL, TINY, AdaptiveStages, CircularWindows, Projection


class CircularBlockV2(CircularWindows, SwinTransformerV2Block):
    """timm's block of SwinV2, on a circle."""


class AdaptiveSwinV2(AdaptiveStages, SwinTransformerV2):
    """A-SwinV2: see `AdaptiveStages` for the arguments."""

    circular_block = CircularBlockV2

    @staticmethod
    def _merging_parts(merging: Any) -> tuple[Projection, Projection]:
        return merging.reduction, merging.norm


def _swinv2(size: str, pretrained: bool, **kwargs: Any) -> nn.Module:
    plain = f"swinv2_{size}_window8_256"
    options = {"window_size": 8, "pretrained_filter_fn": checkpoint_filter_fn, **kwargs}
    return build(AdaptiveSwinV2, plain, pretrained, len(kwargs["depths"]), **options)


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
