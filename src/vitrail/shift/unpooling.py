"""Adaptive unpooling: features go back to where they come from (shift, Sec. 4, Sec. A2.2).

Token n of an adaptive stage sits at pixel ``offset + stride * n`` of the image, modulo its size,
with an offset for each sample (`vitrail.shift.torus.Features`). On their way to a finer grid tokens
are upsampled around the borders, as `F.interpolate(align_corners=False)`, and then rolled by

    (offset of the source - offset of the target) / stride of the target.

So unpooling commutes with circular shifts. `replication.papers.shift.code_examples` has the encoder
and decoder of Sec. A2.2, which leaves zeros between the features instead.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from vitrail.shift.torus import Features

Mode = Literal["bilinear", "zero_insert"]


def unpool(features: Features, offset: Tensor, stride: int, mode: Mode = "bilinear") -> Tensor:
    """Put features ``(B, C, H, W)`` on a grid as fine or finer.

    The target's first token sits at pixel `offset`, int64 ``(B, 2)``, a multiple of `stride` away
    from the features' own, and its tokens `stride` pixels apart, a divisor of the features' own.
    Between tokens ``bilinear`` interpolates, ``zero_insert`` leaves zeros (A2.2).

    Returns:
        ``(B, C, factor * H, factor * W)`` with ``factor = features.stride / stride``.
    """
    factor = features.stride // stride
    x, roll = features.tokens, (offset - features.offset) // stride
    if mode == "zero_insert":
        finer = x.new_zeros(*x.shape[:2], *(factor * side for side in x.shape[2:]))
        finer[:, :, ::factor, ::factor] = x
        return _rolled(finer, roll, margin=0)
    padded = functional.pad(x, (1, 1, 1, 1), mode="circular")
    size = [factor * side for side in padded.shape[2:]]
    finer = functional.interpolate(padded, size, mode="bilinear", align_corners=False)
    return _rolled(finer, roll, margin=factor)


def to_pixels(features: Features, mode: Mode = "bilinear") -> Tensor:
    """Put features on the pixels of their image: ``(B, C, image height, image width)``."""
    return unpool(features, features.offset.new_zeros(features.offset.shape), 1, mode)


def _rolled(x: Tensor, offset: Tensor, margin: int) -> Tensor:
    """Roll what the margin encloses, as `vitrail.shift.torus.roll_image`, in one copy."""
    batch, channels, *padded = x.shape
    height, width = (side - 2 * margin for side in padded)
    rows = (torch.arange(height, device=x.device) + offset[:, :1]) % height + margin
    columns = (torch.arange(width, device=x.device) + offset[:, 1:]) % width + margin
    index = (rows[:, :, None] * padded[1] + columns[:, None, :]).flatten(1)
    rolled = x.flatten(2).gather(2, index[:, None].expand(-1, channels, -1))
    return rolled.view(batch, channels, height, width)
