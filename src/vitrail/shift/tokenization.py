"""A-token and A-PMerge: use the strided grid with the most energy (shift, Sec. 4).

A tokeniser is a strided convolution; circular, it has stride^2 grids to choose from. The paper
scores each by the energy of its tokens, F = sum of ||X E + b||^2. Three ways to do so:

- stride^2 tokenisations, as the paper writes it.
- `correlation_energies`: the same numbers from the image's circular autocorrelation. With
  G = E E^T, the energy of a grid is the sum over pairs of taps t, t' of G[t, t'] times the sum over
  its patches of x[t] x[t']; the latter takes few distinct values, which serve all grids.
- `projection_energies`: F = sum of <a, token>^2 for one direction a. Any function of the tokens
  that ignores their order will do for F (shift, Claim 1), and this is one channel instead of D. A
  LayerNorm behind the tokeniser removes the mean of the channels, so a is orthogonal to it.

Patch merging is a strided convolution too (Claim 3). The paper computes it densely, at every token,
and samples the output's strongest polyphase component (APS); the energy of the input is cheaper.

``selection="paper"`` takes the cheaper of the first two ways and merges densely, ``"fast"`` the
cheap ones. ``"none"`` leaves every grid at the first pixel and token, to see what choosing costs.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, Literal, Self, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from vitrail.errors import VitrailError, require_known
from vitrail.shift.polyphase import (
    full_precision,
    roll,
    roll_image,
    sample,
    strongest_grid,
    strongest_phase,
)
from vitrail.shift.torus import circular_conv, circular_pad, first_phase
from vitrail.shift.windows import window_offset

Selection = Literal["paper", "fast", "none"]
FLOAT64 = ("cpu", "cuda", "xpu", "meta")  # devices that have it, unlike MPS
MERGED = 2  # tokens of each axis that are merged into one


class Selecting(nn.Module):
    """A model that selects its grids, and records how in its weights; first in a class's bases.

    Logits of shifted images are equal but for rounding. Parameters and their names are the plain
    model's, so that weights interchange both ways. Weights learn the grids that they are trained
    on, so those of another selection are refused. A plain model's record none and fit any; it takes
    ours without ``_extra_state``.
    """

    selection: Selection

    @classmethod
    def of(cls, model: nn.Module, selection: Selection = "paper") -> Self:
        """Return an adaptive copy of a plain model, with its weights (shift, Sec. A5.3).

        Raises:
            VitrailError: the model does not fit its images, or `selection` is unknown.
        """
        adaptive = cast(Self, copy.deepcopy(model))
        adaptive.__class__ = cls
        adaptive.make_adaptive(selection)
        return adaptive

    def make_adaptive(self, selection: Selection) -> None:
        """Complete a plain model that has been built.

        Raises:
            VitrailError: as `of`.
        """
        require_known("selection", selection, get_args(Selection))
        self.selection = selection

    def get_extra_state(self) -> Tensor:
        """Return the number of the selection."""
        return torch.tensor(get_args(Selection).index(self.selection), device="cpu")

    def set_extra_state(self, state: Tensor) -> None:
        """Compare what weights record with the model.

        Raises:
            VitrailError: they are of another selection.
        """
        trained = get_args(Selection)[int(state)]
        if trained != self.selection:
            raise VitrailError(
                f"the weights are of selection '{trained}' and the model is of '{self.selection}': "
                f"build the model with selection='{trained}'"
            )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        state_dict.setdefault(f"{prefix}_extra_state", self.get_extra_state())
        super()._load_from_state_dict(state_dict, prefix, *args)


@torch.no_grad()
def correlation_energies(x: Tensor, conv: nn.Conv2d) -> Tensor:
    """Score every grid by its tokens' energy (shift, Eq. 14), without tokenising any.

    Images ``(B, C, H, W)`` give float64 ``(B, stride, stride)``.
    """
    if not hasattr(conv, "pairs"):
        prepare_correlation(conv)
    stride, reach = conv.stride[0], _reach(conv)
    pairs, taps = cast(Tensor, conv.pairs), cast(Tensor, conv.taps)
    # Rows of both are as wide, so that a lag is a distance in memory, which costs no copy. Beyond
    # the image one holds its other side, and the other zeros.
    margin = reach * stride
    around = _components(functional.pad(x, (margin, margin, 0, margin), mode="circular"), stride)
    still = _components(functional.pad(x, (0, 2 * margin)), stride)
    width, length = x.shape[3] // stride + 2 * reach, still.shape[2] - 2 * reach
    products = []
    for row, column in _lags(reach):
        start = row * width + column + reach
        apart = max(0, stride * row - conv.kernel_size[0] + 1)  # rows that no kernel holds with it
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
    """Give a tokeniser the tables of `correlation_energies`, which compiled code cannot make."""
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
    """Say which entry of the autocorrelation each pair of taps reads, for each grid.

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


@torch.no_grad()
def projection_energies(x: Tensor, conv: nn.Conv2d) -> Tensor:
    """Return the energy along one direction of every token of every grid.

    Images ``(B, C, H, W)`` give ``(B, stride, stride, H / stride, W / stride)``. One strided
    convolution tokenises all grids at once: its channels are the grids, each the same kernel at
    another place.
    """
    stride, kernel, before = conv.stride[0], conv.kernel_size[0], int(conv.padding[0])
    last, after, span = stride - 1, max(0, kernel - 1 - before), kernel + stride - 1
    # Half precision would create ties.
    with full_precision(x):
        a = direction(conv.out_channels, conv.weight)
        projection = (a @ conv.weight.flatten(1)).view(conv.weight.shape[1:])  # (C, k, k)
        places = functional.pad(projection, (last,) * 4).unfold(1, span, 1).unfold(2, span, 1)
        weight = places.flip(1, 2).permute(1, 2, 0, 3, 4).flatten(0, 1)
        padded = functional.pad(x.to(weight.dtype), (before, after, before, after), mode="circular")
        bias = None if conv.bias is None else (a @ conv.bias).expand(stride**2)
        tokens = functional.conv2d(padded, weight, bias, stride)
    return tokens.square().unflatten(1, (stride, stride))


def direction(channels: int, like: Tensor) -> Tensor:
    """Return a fixed unit vector ``(channels,)`` that is orthogonal to that of ones."""
    chirp = torch.arange(channels, device=like.device).to(like).square().cos()
    return functional.normalize(chirp - chirp.mean(), dim=0)


def adaptive_conv(x: Tensor, conv: nn.Conv2d, selection: Selection) -> tuple[Tensor, Tensor]:
    """Tokenise the strongest grid (shift, Eq. 13, Eq. 16, Claim 1).

    ``(B, C, H, W)``, height and width multiples of the stride, gives channels-last tokens
    ``(B, H / s, W / s, D)`` and the chosen phase ``(B, 2)``.
    """
    stride = conv.stride[0]
    if selection == "none":
        return circular_conv(x, conv).permute(0, 2, 3, 1), first_phase(x)
    if selection == "paper" and not _correlation_is_cheaper(x, conv):
        tokens = circular_conv(x, conv, stride=1).permute(0, 2, 3, 1)
        phase = strongest_phase(tokens, stride)
        return sample(tokens, phase, stride), phase
    with torch.no_grad(), full_precision(x):
        scores = correlation_energies(x, conv) if selection == "paper" else None
        phase = strongest_grid(projection_energies(x, conv), scores)
    return circular_conv(roll_image(x, phase), conv).permute(0, 2, 3, 1), phase


def _correlation_is_cheaper(x: Tensor, conv: nn.Conv2d) -> bool:
    """Compare multiplications with those of the dense convolution; a float64 one counts four times.

    Twice is what its bytes tell; the rest is measured, on images of 24 to 224 pixels on one core.
    """
    if x.device.type not in FLOAT64:
        return False
    pixels, grids = x.numel() // x.shape[1], conv.stride[0] ** 2
    correlation = len(_lags(_reach(conv))) * (conv.in_channels * grids) ** 2
    by_correlation = 4 * correlation * (pixels // grids + x.shape[0] * grids)
    dense = pixels * conv.out_channels * conv.in_channels * conv.kernel_size[0] ** 2
    return by_correlation < dense


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


def adaptive_merge(
    x: Tensor, project: Callable[[Tensor], Tensor], selection: Selection
) -> tuple[Tensor, Tensor]:
    """Merge the strongest phase (shift, Eq. 23, Sec. A2.1).

    Args:
        x: tokens ``(B, H, W, C)``, H and W even.
        project: ``(..., 4C)`` to ``(..., D)``, whose output's energy decides in "paper".
        selection: "paper" or "fast", see the module.

    Returns:
        ``(B, H / 2, W / 2, D)`` and the chosen phase ``(B, 2)``.
    """
    if selection == "none":
        return project(merged_patches(x)), first_phase(x)
    if selection == "fast":
        phase = window_offset(x, (MERGED, MERGED))  # patches are windows, too
        return project(merged_patches(roll(x, phase))), phase
    dense = project(overlapping_patches(x))
    phase = strongest_phase(dense, MERGED)
    return sample(dense, phase, MERGED), phase
