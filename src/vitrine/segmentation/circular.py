"""A convolution on an image without borders, for the configs of mmseg's heads.

    conv_cfg = dict(type="CircularConv2d")

The paper's models under circular shifts, plain and adaptive, have it in all of UperNet (Sec. 5.5).
"""

from __future__ import annotations

from typing import Any

from mmengine.registry import MODELS
from torch import nn


@MODELS.register_module()
class CircularConv2d(nn.Conv2d):
    """torch's convolution with circular padding."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "padding_mode": "circular"})
