"""Scores of grids (shift, Sec. 4, Eq. 14), and the patches of merging (shift, Eq. 10, Eq. 22).

A tokeniser is a strided convolution; circular, it has stride^2 grids to choose from. Patch merging
is one, too (Claim 3). `selection` chooses the grids by the scores.

The score F of a grid is the energy of its tokens, with their bias. `dense_energies` is the
definition: tokenise at every pixel, and sum the squares of each grid. `correlation_energies` are
the same numbers without tokenising, from the image's circular autocorrelation. With the Gram matrix
A = E E^T of the kernel, the energy of a grid is the sum over pairs of taps t, t' of A[t, t'] times
the sum over its patches of x[t] x[t'], and terms of the bias. The sums over patches take few
distinct values, which serve all grids.
"""

from __future__ import annotations

import functools
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from vitrail.shift import polyphase
from vitrail.shift.certificate import gamma_n
from vitrail.shift.geometry import circular_conv, circular_pad
from vitrail.shift.polyphase import components, full_precision, to_float64

torch.fx.wrap("circular_pad")  # one node of a traced graph


@torch.no_grad()
def projection_energies(x: Tensor, conv: nn.Conv2d) -> Tensor:
    """Return the square of one fixed linear combination of each token's channels, for every grid.

    Images ``(B, C, H, W)`` give ``(B, stride, stride, H / stride, W / stride)``. One strided
    convolution tokenises all grids at once: its channels are the grids, each the same kernel at
    another place.
    """
    return _projected(x, conv, *_projection(conv)).square()


@torch.no_grad()
def projection_errors(x: Tensor, conv: nn.Conv2d) -> Tensor:
    """Bound the error of each of `projection_energies`, of the same shape."""
    projection, bias = _projection(conv)
    tokens = to_float64(_projected(x, conv, projection, bias).abs())
    reach = _projected(
        to_float64(x.abs()),
        conv,
        to_float64(projection.abs()),
        None if bias is None else bias.abs(),
    )
    # Twice the count, as tensor cores may truncate sums where other hardware rounds to nearest.
    error = gamma_n(2 * (projection.numel() + 3), projection.dtype) * reach
    return 2 * tokens * error + error.square() + gamma_n(1, projection.dtype) * tokens.square()


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
    """Return a fixed unit vector ``(channels,)`` whose entries sum to zero."""
    chirp = torch.arange(channels, device=like.device).to(like).square().cos()
    return functional.normalize(chirp - chirp.mean(), dim=0)


def merged_patches(x: Tensor) -> Tensor:
    """Concatenate each 2x2 patch: ``(B, H, W, C)`` to ``(B, H / 2, W / 2, 4C)``, as timm orders it.

    Source: shift, Eq. 10.

    Columns vary slowest, then rows, then channels. In the paper (Eq. A65-A66) channels vary
    slowest, so timm's rows of the projection are the paper's in another order. Swin applies a
    LayerNorm to the patch before the projection; Eq. 10 has no LayerNorm.
    """
    batch, height, width, channels = x.shape
    patches = x.reshape(batch, height // 2, 2, width // 2, 2, channels)
    return patches.permute(0, 1, 3, 4, 2, 5).flatten(3)


def overlapping_patches(x: Tensor) -> Tensor:
    """Concatenate the 2x2 patch at each token: ``(B, H, W, C)`` to ``(B, H, W, 4C)``.

    Source: shift, Claim 3, Eq. 21-22. Swin applies a LayerNorm to each patch before the projection.
    So its projected patches are not linear in the tokens; y_k of Eq. 22 is. The sampling is the
    same.
    """
    height, width = x.shape[1:3]
    x = circular_pad(x, 0, 1)
    starts = [(row, column) for column in range(2) for row in range(2)]
    return torch.cat([x[:, i : i + height, j : j + width] for i, j in starts], dim=-1)


def dense_energies(x: Tensor, conv: nn.Conv2d) -> Tensor:
    """Score every grid by its tokens' energy (shift, Eq. 14): ``(B, stride, stride)``.

    This is the definition, which tests use; models run `correlation_energies`.
    """
    tokens = circular_conv(x, conv, stride=1)
    energies = tokens.square().sum(dim=1)
    return components(energies, (conv.stride[0], conv.stride[0])).sum(dim=(3, 4))


@torch.no_grad()
def correlation_energies(x: Tensor, conv: nn.Conv2d) -> Tensor:
    """Return `dense_energies` of images ``(B, C, H, W)``, in float64 (shift, Eq. 14)."""
    if not hasattr(conv, "pairs"):
        prepare_correlation(conv)
    stride, reach = conv.stride[0], _reach(conv)
    pairs, taps = cast(Tensor, conv.pairs), cast(Tensor, conv.taps)
    # Both maps have rows of equal length, so a lag is a fixed offset in memory, and no copy is
    # needed. Beyond the image `around` holds the image's other side, and `still` holds zeros.
    margin = reach * stride
    around = _components(functional.pad(x, (margin, margin, 0, margin), mode="circular"), stride)
    still = _components(functional.pad(x, (0, 2 * margin)), stride)
    width, length = x.shape[3] // stride + 2 * reach, still.shape[2] - 2 * reach
    products = []
    for row, column in _lags(reach):
        start = row * width + column + reach
        apart = max(0, stride * row - conv.kernel_size[0] + 1)  # rows out of its reach
        apart *= stride * conv.in_channels
        first = around[:, : around.shape[1] - apart, start : start + length]
        product = first @ still[:, apart:, :length].mT
        products.append(functional.pad(product, (apart, 0, 0, apart)).flatten(1))
    correlation = torch.cat(products, dim=1)  # (B, lags R R)

    weight = conv.weight.double().flatten(1)  # (D, T)
    gram = (weight.mT @ weight).flatten()
    quadratic = gram.new_zeros(stride**2, correlation.shape[1])
    quadratic.scatter_add_(1, pairs, gram.expand(stride**2, -1))
    energies = correlation @ quadratic.mT
    if conv.bias is not None:
        bias, tokens = conv.bias.double(), x.shape[2] * x.shape[3] // stride**2
        sums = still.sum(dim=2)  # (B, R)
        energies = energies + 2 * sums[:, taps] @ (bias @ weight) + tokens * bias.square().sum()
    return energies.unflatten(1, (stride, stride))


def _components(x: Tensor, stride: int) -> Tensor:
    """Return the polyphase components of ``(B, C, H, W)``: float64 ``(B, s^2 C, H W / s^2)``.

    Their rows vary slowest, then columns, then channels.
    """
    split = x.unflatten(3, (-1, stride)).unflatten(2, (-1, stride)).permute(0, 3, 5, 1, 2, 4)
    wide = split.to(torch.float64, memory_format=torch.contiguous_format)
    return wide.flatten(4).flatten(1, 3)


def prepare_correlation(conv: nn.Conv2d) -> None:
    """Add to a tokeniser the tables of `correlation_energies`, which compiled code cannot make."""
    pairs, taps = _pair_taps(conv)
    conv.register_buffer("pairs", pairs.to(conv.weight.device), persistent=False)
    conv.register_buffer("taps", taps.to(conv.weight.device), persistent=False)


def _reach(conv: nn.Conv2d) -> int:
    """Return the largest distance, in patches, of two taps of a kernel."""
    kernel, stride, padding = conv.kernel_size[0], conv.stride[0], int(conv.padding[0])
    return (stride + kernel - 2 - padding) // stride - (-padding // stride)


def _lags(reach: int) -> list[tuple[int, int]]:
    """Return the distances of patches, one of each pair of opposite sign, (0, 0) first."""
    steps = range(-reach, reach + 1)
    lags = [(down, right) for down in steps for right in steps]
    return lags[len(lags) // 2 :]


def _pair_taps(conv: nn.Conv2d) -> tuple[Tensor, Tensor]:
    """Return which entry of the autocorrelation each pair of taps reads, for each grid.

    Tap t of grid m reads pixel ``stride * n + m + t - padding``, which is entry ``n + carry`` of
    polyphase component r. A pair of taps so needs the correlation of two components at the
    difference of their carries, the lag; lags come in pairs of opposite sign, which differ by an
    exchange of the components, so half of them suffice.

    Returns ``(stride^2, T^2)`` places in the flat ``(lags, R, R)`` correlation, and
    ``(stride^2, T)`` components of the single taps, on the CPU.
    """
    kernel, stride, channels = conv.kernel_size[0], conv.stride[0], conv.in_channels
    sides = (stride, stride, channels, kernel, kernel)
    arange = functools.partial(torch.arange, device="cpu")  # a meta device has no values
    row, column, channel, down, right = torch.meshgrid(*map(arange, sides), indexing="ij")
    pixel = torch.stack([row + down, column + right]) - int(conv.padding[0])
    pixel, channel = pixel.reshape(2, stride**2, -1), channel.reshape(stride**2, -1)  # (.., T)
    carry, (row, column) = pixel.div(stride, rounding_mode="floor"), pixel % stride
    component = (row * stride + column) * channels + channel  # as `_components` orders them

    lag = carry[..., :, None] - carry[..., None, :]
    swapped = (lag[0] < 0) | ((lag[0] == 0) & (lag[1] < 0))
    i, j = torch.where(swapped, -lag, lag)
    one, other = component[:, :, None], component[:, None, :]
    first, second = torch.where(swapped, other, one), torch.where(swapped, one, other)
    # In `_lags`, which begins at the middle of all (2 reach + 1)^2 lags, at (0, 0).
    index = i * (2 * _reach(conv) + 1) + j
    count = channels * stride**2
    pairs = (index * count + first) * count + second
    return pairs.flatten(1), component


def correlation_is_cheaper(x: Tensor, conv: nn.Conv2d) -> bool:
    """Say whether `correlation_energies` takes fewer multiplications than dense tokens.

    A multiplication in float64 counts four times: as measured on one CPU core, for images of 24 to
    224 pixels. By this rule it does so for the first layers of A-Swin-T, A-SwinV2-T, A-CvT-13 and
    A-MViTv2-T at their own image sizes, where the device has float64.
    """
    if x.device.type not in polyphase.DEVICES_WITH_FLOAT64:
        return False
    pixels, grids = x.numel() // x.shape[1], conv.stride[0] ** 2
    correlation = len(_lags(_reach(conv))) * (conv.in_channels * grids) ** 2
    by_correlation = 4 * correlation * (pixels // grids + x.shape[0] * grids)
    dense = pixels * conv.out_channels * conv.in_channels * conv.kernel_size[0] ** 2
    return by_correlation < dense
