"""What the grids of tokens are scored and made of (shift, Sec. 4); `grid_selection` chooses them.

A tokeniser is a strided convolution; circular, it has stride^2 grids to choose from. Patch merging
is one, too (Claim 3).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from vitrail.shift.error_bounds import gamma
from vitrail.shift.polyphase import full_precision, wide
from vitrail.shift.torus import circular_pad

torch.fx.wrap("circular_pad")  # one node of a traced graph


@torch.no_grad()
def projection_energies(x: Tensor, conv: nn.Conv2d) -> Tensor:
    """Return the energy along one direction of every token of every grid.

    Images ``(B, C, H, W)`` give ``(B, stride, stride, H / stride, W / stride)``. One strided
    convolution tokenises all grids at once: its channels are the grids, each the same kernel at
    another place.
    """
    return _projected(x, conv, *_projection(conv)).square()


@torch.no_grad()
def projection_errors(x: Tensor, conv: nn.Conv2d) -> Tensor:
    """Bound the error of each of `projection_energies`, of the same shape."""
    projection, bias = _projection(conv)
    tokens = wide(_projected(x, conv, projection, bias).abs())
    reach = _projected(
        wide(x.abs()), conv, wide(projection.abs()), None if bias is None else bias.abs()
    )
    # Twice, as the sums of tensor cores may cut off where others round to nearest.
    error = gamma(2 * (projection.numel() + 3), projection.dtype) * reach
    return 2 * tokens * error + error.square() + gamma(1, projection.dtype) * tokens.square()


def _projection(conv: nn.Conv2d) -> tuple[Tensor, Tensor | None]:
    """Return a tokeniser of one channel, its weights ``(C, k, k)`` and its bias."""
    with full_precision(conv.weight):  # half precision would create ties
        a = direction(conv.out_channels, conv.weight)
        projection = (a @ conv.weight.flatten(1)).view(conv.weight.shape[1:])
        return projection, None if conv.bias is None else a @ conv.bias


def _projected(x: Tensor, conv: nn.Conv2d, projection: Tensor, bias: Tensor | None) -> Tensor:
    stride, kernel, before = conv.stride[0], conv.kernel_size[0], int(conv.padding[0])
    last, after, span = stride - 1, max(0, kernel - 1 - before), kernel + stride - 1
    with full_precision(x):
        places = functional.pad(projection, (last,) * 4).unfold(1, span, 1).unfold(2, span, 1)
        weight = places.flip(1, 2).permute(1, 2, 0, 3, 4).flatten(0, 1)
        padded = functional.pad(x.to(weight.dtype), (before, after, before, after), mode="circular")
        every = None if bias is None else bias.to(weight.dtype).expand(stride**2)
        tokens = functional.conv2d(padded, weight, every, stride)
    return tokens.unflatten(1, (stride, stride))


def direction(channels: int, like: Tensor) -> Tensor:
    """Return a fixed unit vector ``(channels,)`` that is orthogonal to that of ones."""
    chirp = torch.arange(channels, device=like.device).to(like).square().cos()
    return functional.normalize(chirp - chirp.mean(), dim=0)


def merged_patches(x: Tensor) -> Tensor:
    """Concatenate each 2x2 patch: ``(B, H, W, C)`` to ``(B, H / 2, W / 2, 4C)``, as timm orders it.

    Source: shift, Eq. 10.

    Columns vary slowest, then rows, then channels.
    """
    batch, height, width, channels = x.shape
    patches = x.reshape(batch, height // 2, 2, width // 2, 2, channels)
    return patches.permute(0, 1, 3, 4, 2, 5).flatten(3)


def overlapping_patches(x: Tensor) -> Tensor:
    """Concatenate the 2x2 patch at each token: ``(B, H, W, C)`` to ``(B, H, W, 4C)``.

    Source: shift, Claim 3, Eq. 21-22.
    """
    height, width = x.shape[1:3]
    x = circular_pad(x, 0, 1)
    starts = [(row, column) for column in range(2) for row in range(2)]
    return torch.cat([x[:, i : i + height, j : j + width] for i, j in starts], dim=-1)
