"""timm's blocks of Swin and SwinV2 on a circle (shift, Eq. 9).

A window that wraps around the border is one like the others, so nothing is masked.
"""

from __future__ import annotations

from typing import Any

import torch
from timm.models.swin_transformer import SwinTransformerBlock, window_partition, window_reverse
from timm.models.swin_transformer_v2 import SwinTransformerV2Block
from torch import Tensor, nn

from vitrail.shift.torus import Size

for _node in ("window_partition", "window_reverse"):  # of a traced graph
    torch.fx.wrap(_node)


class CircularWindows(nn.Module):
    """Makes timm's block of Swin or SwinV2 circular; comes before it in the bases of a class.

    Source: shift, Eq. 9.
    """

    window_size: Size
    shift_size: Size
    attn: Any

    def get_attn_mask(self, *_: Any, **__: Any) -> None:
        """Mask nothing."""

    def _attn(self, x: Tensor) -> Tensor:
        height, width = x.shape[1:3]
        down, right = self.shift_size
        shifted = x.roll((-down, -right), (1, 2)) if down or right else x
        windows = self.attn(window_partition(shifted, self.window_size).flatten(1, 2))
        attended: Tensor = window_reverse(windows, self.window_size, height, width)
        return attended.roll((down, right), (1, 2)) if down or right else attended


class CircularBlock(CircularWindows, SwinTransformerBlock):
    """timm's block of Swin, on a circle."""


class CircularBlockV2(CircularWindows, SwinTransformerV2Block):
    """timm's block of SwinV2, on a circle."""
