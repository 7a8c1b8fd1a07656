"""Where tokens sit in an image, and how features are put back there (shift, Sec. 4).

An image is a torus. Every choice of a phase or a window offset (`polyphase`) moves the grid of
tokens on it: token n of an adaptive stage sits at pixel ``offset + stride * n``, modulo the image,
with an offset for each sample (`Features`). Plain models have such grids too, whose offset is zero.

Adaptive unpooling (Sec. 4, "Segmentation"; Sec. A2.2) puts features back to where they come from:
examples/adaptive_unpooling_in_one_file.py has all of it. Tokens are put on a finer grid in
two steps: they are upsampled circularly, as by `F.interpolate(align_corners=False)`, then rolled by

    (offset of the target - offset of the source) / stride of the target,

which is an exponent of S, like all offsets. So unpooling commutes with circular shifts.
`replication.papers.shift.code_examples` has the encoder and decoder of Sec. A2.2, which leaves
zeros between the features instead.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

Size = tuple[int, int]


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

    def aligned(self) -> Features:
        """Roll the tokens into the image's own order, so that they are at most half a stride off.

        The new offsets are from ``-stride / 2`` to below ``stride / 2``. So if the image of an
        adaptive model is shifted by one pixel, its map stays or is shifted by one token (shift,
        Eq. 2).
        """
        nearest = self.offset + self.stride // 2
        first = nearest.div(self.stride, rounding_mode="floor")
        tokens = roll_image(self.tokens, -first)
        return Features(tokens, self.offset - self.stride * first, self.stride)


class Frame(NamedTuple):
    """The grid of tokens in an image of `size` pixels: see `Features` for the other two."""

    offset: Tensor
    stride: int
    size: Size

    @classmethod
    def of(cls, images: Tensor) -> Frame:
        """Return the grid of the pixels themselves of ``(B, C, H, W)``."""
        return cls(zero_offsets(images), 1, (images.shape[2], images.shape[3]))

    def rolled(self, offset: Tensor) -> Frame:
        """Return the grid after the tokens were rolled by `offset` tokens, ``(B, 2)``."""
        place = wrap(self.offset + self.stride * offset, self.size)
        return Frame(place, self.stride, self.size)

    def sampled(self, phase: Tensor, factor: int) -> Frame:
        """Return the grid of every `factor`-th token, beginning at `phase`, ``(B, 2)``."""
        return Frame(self.rolled(phase).offset, self.stride * factor, self.size)

    def place(self, tokens: Tensor) -> Features:
        """Return channels-last tokens ``(B, H, W, C)`` with the place where they sit."""
        return Features(tokens.permute(0, 3, 1, 2).contiguous(), self.offset, self.stride)


def roll_image(x: Tensor, offset: Tensor) -> Tensor:
    """Roll each sample of ``(B, C, H, W)`` by its own `offset` (shift, Eq. 1)."""
    batch, channels, height, width = x.shape
    index = rolled_index(height, width, offset)[:, None].expand(batch, channels, height * width)
    return x.flatten(2).gather(2, index).view(x.shape)


def rolled_index(height: int, width: int, offset: Tensor) -> Tensor:
    """Return the flat source index of each of H W positions, rolled by `offset` ``(B, 2)``.

    Its shape is ``(B, H W)``.
    """
    rows = (torch.arange(height, device=offset.device) + offset[:, :1]) % height
    columns = (torch.arange(width, device=offset.device) + offset[:, 1:]) % width
    return (rows[:, :, None] * width + columns[:, None, :]).flatten(1)  # (B, H W)


def zero_offsets(x: Tensor) -> Tensor:
    """Return the phase ``(B, 2)`` of grids that begin at the first pixel or token."""
    return x.new_zeros((x.shape[0], 2), dtype=torch.int64)


def wrap(offset: Tensor, size: Size) -> Tensor:
    """Return the offset ``(B, 2)`` modulo `size`, rows and columns."""
    # A tensor of both sides would have to be copied to the device, which waits for its queue.
    rows, columns = offset.unbind(dim=1)
    return torch.stack([rows % size[0], columns % size[1]], dim=1)


def circular_conv(x: Tensor, conv: nn.Conv2d, stride: int | None = None) -> Tensor:
    """Convolve ``(B, C, H, W)`` circularly, by default at the layer's stride (shift, Eq. 5-6).

    Token n of an axis reads the pixels ``stride * n - padding + tap``. The stride divides H and W.
    In Eq. 5-6 patches do not overlap, as in Swin, whose kernel is as large as the stride. The
    kernels of CvT and MViTv2 are larger, so their patches overlap. The bias is not in Eq. 5.
    The result is channels-last in memory, like tokens: in other layouts, rolls and norms are
    several times slower.
    """
    stride = conv.stride[0] if stride is None else stride
    before, after = borders(conv, stride)
    if before or after:
        x = functional.pad(x, (before, after, before, after), mode="circular")
    x = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    return functional.conv2d(x, conv.weight, conv.bias, stride, groups=conv.groups)


def borders(layer: Any, stride: int) -> tuple[int, int]:
    """Return how far a square convolution or pooling at `stride` reads before and after a map."""
    before = int(layer.padding[0])
    return before, max(0, layer.kernel_size[0] - stride - before)


def circular_pad(x: Tensor, before: int, after: int) -> Tensor:
    """Pad both axes of ``(B, H, W, C)`` circularly.

    torch's own circular padding leaves the channels-last layout, in which depthwise convolutions
    run several times faster, and its gradient copies the whole map once for each border.

    Args:
        x: tokens, ``before <= H`` and ``after <= H``, and so for W.
        before: tokens above and to the left.
        after: tokens below and to the right.

    Returns:
        contiguous ``(B, before + H + after, before + W + after, C)``.
    """
    return cast(Tensor, _CircularPad.apply(x, before, after))


class _CircularPad(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, before: int, after: int) -> Tensor:
        batch, height, width, channels = x.shape
        bottom, right = before + height, before + width
        padded = x.new_empty(batch, bottom + after, right + after, channels)
        inside = padded[:, :, before:right]
        inside[:, before:bottom] = x
        inside[:, :before] = x[:, height - before :]
        inside[:, bottom:] = x[:, :after]
        padded[:, :, :before] = padded[:, :, width:right]
        padded[:, :, right:] = padded[:, :, before : before + after]
        return padded

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int, int], output: Tensor) -> None:
        ctx.borders = inputs[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        before, after = ctx.borders
        gradient = gradient.clone()
        bottom, right = gradient.shape[1] - after, gradient.shape[2] - after
        gradient[:, :, right - before : right] += gradient[:, :, :before]
        gradient[:, :, before : before + after] += gradient[:, :, right:]
        inside = gradient[:, :, before:right]
        inside[:, bottom - before : bottom] += inside[:, :before]
        inside[:, before : before + after] += inside[:, bottom:]
        return inside[:, before:bottom], None, None


Mode = Literal["bilinear", "zero_insert"]


def unpool(features: Features, offset: Tensor, stride: int, mode: Mode = "bilinear") -> Tensor:
    """Put features ``(B, C, H, W)`` on a target grid that is as fine or finer.

    The first token of the target grid sits at pixel `offset`, int64 ``(B, 2)``, and its tokens are
    `stride` pixels apart. `stride` divides the stride of the features, and the difference of the
    two offsets. Between the features, ``bilinear`` interpolates, ``zero_insert`` leaves zeros
    (A2.2).

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
    """Remove a border of `margin` entries and roll the rest, as `roll_image`, in one copy."""
    batch, channels, *padded = x.shape
    height, width = (side - 2 * margin for side in padded)
    rows = (torch.arange(height, device=x.device) + offset[:, :1]) % height + margin
    columns = (torch.arange(width, device=x.device) + offset[:, 1:]) % width + margin
    index = (rows[:, :, None] * padded[1] + columns[:, None, :]).flatten(1)
    rolled = x.flatten(2).gather(2, index[:, None].expand(-1, channels, -1))
    return rolled.view(batch, channels, height, width)
