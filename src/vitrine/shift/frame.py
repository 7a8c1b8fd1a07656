"""Where the tokens of a stage sit in the image.

Every choice of a phase or a window offset moves the grid of tokens. A dense head must put its
features back (Sec. 4, "Segmentation with equivariant upsampling"), and needs for that one absolute
offset in pixels for each sample and axis: token n sits at pixel ``offset + stride * n``, modulo the
image.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vitrine.shift.polyphase import wrap


class Features(NamedTuple):
    """The features of a stage, and where they sit.

    Attributes:
        tokens: ``(B, C, H, W)``.
        offset: int64 ``(B, 2)``, the pixel (row, column) of the first token.
        stride: pixels from one token to the next.
    """

    tokens: Tensor
    offset: Tensor
    stride: int


class Frame(NamedTuple):
    """The grid of tokens in an image of `size` pixels: see `Features` for the other two."""

    offset: Tensor
    stride: int
    size: tuple[int, int]

    @classmethod
    def of(cls, images: Tensor) -> Frame:
        """Return the grid of the pixels themselves of ``(B, C, H, W)``."""
        offset = torch.zeros(len(images), 2, dtype=torch.int64, device=images.device)
        return cls(offset, 1, (images.shape[2], images.shape[3]))

    def rolled(self, offset: Tensor) -> Frame:
        """Return the grid after the tokens were rolled by `offset` tokens, ``(B, 2)``."""
        pixels = self.offset + self.stride * offset
        return self._replace(offset=wrap(pixels, self.size))

    def sampled(self, phase: Tensor, factor: int) -> Frame:
        """Return the grid of every `factor`-th token, beginning at `phase`, ``(B, 2)``."""
        return self.rolled(phase)._replace(stride=self.stride * factor)

    def place(self, tokens: Tensor) -> Features:
        """Return channels-last tokens ``(B, H, W, C)`` with the place where they sit."""
        return Features(tokens.permute(0, 3, 1, 2).contiguous(), self.offset, self.stride)
