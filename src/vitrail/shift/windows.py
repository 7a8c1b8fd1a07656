"""A-WSA: lay the grid of attention windows where the energy says (shift, Sec. 4, Eq. 17-20).

The energy of a window is the mean l2 norm of its tokens; a grid of windows is scored by G of its
windows' energies, here their l2 norm. G cannot be their mean, which is the same for every grid, nor
should it be their maximum: on a uniform background windows tie, and which of them is found first
has nothing to do with the object. Exact ties remain, such as of windows that hold the same object
on that background; the arrangement of all tokens settles them, see `polyphase`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from timm.models import register_notrace_module
from torch import Tensor, nn

from vitrail.errors import VitrailError
from vitrail.shift.error_bounds import gamma, margin, places_error, settled_margin
from vitrail.shift.polyphase import (
    FIXED_POINT,
    break_ties,
    fixed_point,
    full_precision,
    grids,
    polyphase_energies,
    strongest,
    tie_break_scores,
    token_norms,
)
from vitrail.shift.torus import Size


@torch.no_grad()
def window_energies(tokens: Tensor, window: Size) -> Tensor:
    """Return the mean token norm of the window that begins at each token (shift, Eq. 17-18).

    For figures; models compute the same numbers in `_scores`.

    Args:
        tokens: ``(B, H, W, C)``, not normalised: after LayerNorm norms are all alike.
        window: rows and columns.

    Returns:
        ``(B, H, W)``, relative to the largest norm of each sample.
    """
    norms = token_norms(tokens)
    return _window_means(fixed_point(norms), window, norms.dtype)


def _window_means(units: Tensor, window: Size, dtype: torch.dtype) -> Tensor:
    rows, columns = window
    sums = _running_sum(_running_sum(units, columns).mT, rows).mT
    return sums.to(dtype) / (FIXED_POINT * rows * columns)  # Eq. 18 of all m and k


def _running_sum(x: Tensor, length: int) -> Tensor:
    """Return the sum of the `length` integers from each one on, around the last axis."""
    before = torch.cat([x.new_zeros(*x.shape[:-1], 1), x, x[..., : length - 1]], dim=-1).cumsum(-1)
    return before[..., length:] - before[..., :-length]


def window_offset(tokens: Tensor, window: Size, anchored: bool = False) -> Tensor:
    """Choose the offset of the grid of windows (shift, Eq. 20, Claim 2).

    Args:
        tokens: ``(B, H, W, C)``; H and W are multiples of `window`.
        window: rows and columns.
        anchored: of the windows of that grid choose one, so that a shifted image's tokens, rolled
            by the offset, are those of the image in the same order.

    Returns:
        int64 ``(B, 2)``, below `window`, or if anchored below ``(H, W)``; rolled by it, windows
        begin at token 0.
    """
    return window_offsets(tokens, [window], anchored)[0]


@torch.no_grad()
def window_offsets(
    tokens: Tensor, windows: Sequence[Size], anchored: bool = False, in_order: bool = False
) -> list[Tensor]:
    """Return `window_offset` of windows of several sizes, whose norms are taken once.

    `in_order` says that all shifts of an image give the same tokens, in the same order: then no
    tie is broken, the first of the largest scores wins.
    """
    with full_precision(tokens):
        norms = token_norms(tokens)
    units = fixed_point(norms)
    if in_order:
        return [strongest(_scores(norms, units, window)) for window in windows]
    places, offsets = tie_break_scores(norms), []
    for window in windows:
        scores = break_ties(_scores(norms, units, window), _ties(places, window))
        if anchored:
            scores = _anchors(scores, places)
        offsets.append(strongest(scores))  # m* (Eq. 20)
    return offsets


def _scores(norms: Tensor, units: Tensor, window: Size) -> Tensor:
    """Return the score of each grid of windows, ``(B, *window)``.

    Source: shift, Eq. 17-18 by running sums; Eq. 20 with G(v) = sum of v^2.
    """
    means = _window_means(units, window, norms.dtype)
    return polyphase_energies(means.square(), window)  # G(v^(m)) of all m


def _ties(places: Tensor, window: Size) -> Tensor:
    """Return what orders grids of windows of equal scores, ``(B, *window)``.

    `places` are numbers that tell where in the arrangement of all tokens each of them is: see
    `polyphase.arrangement`.
    """
    return grids(places, window).amax(dim=(3, 4)) - places.mean(dim=(1, 2))[:, None, None]


def _anchors(scores: Tensor, places: Tensor) -> Tensor:
    """Return what orders the windows of the best grid, ``(B, H, W)``, and -inf for all others."""
    wins = scores == scores.amax(dim=(1, 2), keepdim=True)
    by_grid = grids(places, (wins.shape[1], wins.shape[2]))
    return places.where(wins.repeat(1, *by_grid.shape[3:]), -torch.inf)


@register_notrace_module
class WindowChoice(nn.Module):
    """`window_offsets`, as a module that `vitrail.measures.selection_margins` can watch."""

    def forward(
        self,
        tokens: Tensor,
        windows: Sequence[Size],
        anchored: bool = False,
        in_order: bool = False,
    ) -> list[Tensor]:
        """Return the offset ``(B, 2)`` of the grid of windows of each size."""
        return window_offsets(tokens, windows, anchored, in_order)

    @torch.no_grad()
    def margin(
        self,
        tokens: Tensor,
        windows: Sequence[Size],
        anchored: bool = False,
        in_order: bool = False,
    ) -> tuple[Tensor, bool]:
        """Return the smallest margin of the choices ``(B,)``, and whether tokens are anchored.

        Tokens that are `in_order` lie behind the anchor, where no margin is asked for.

        Norms are summed as integers, so rounding moves only what orders ties, and the anchor.
        """
        with full_precision(tokens):
            norms = token_norms(tokens)
        units, places, place_error = (
            fixed_point(norms),
            tie_break_scores(norms),
            places_error(norms),
        )
        mean = places.mean(dim=(1, 2))
        tie_error = place_error + gamma(places[0].numel(), places.dtype) * mean
        margins = []
        for window in windows:
            scores, ties = _scores(norms, units, window), _ties(places, window)
            margins.append(settled_margin(scores, torch.zeros_like(mean), ties, tie_error))
            if anchored:
                anchors = _anchors(break_ties(scores, ties), places)
                margins.append(margin(anchors.flatten(1), place_error))
        return torch.stack(margins).amin(dim=0), anchored


def require_windows(size: Size, strides: Sequence[int], windows: Sequence[Size]) -> None:
    """Refuse images that the windows of a stage do not divide.

    Args:
        size: height and width of the images, in pixels.
        strides: of each stage, in pixels.
        windows: of each stage, in tokens.

    Raises:
        VitrailError: they do not.
    """
    if not any(
        pixels % (stride * side)
        for stride, window in zip(strides, windows, strict=True)
        for pixels, side in zip(size, window, strict=True)
    ):
        return
    rows, columns = (max(sides) for sides in zip(*windows, strict=True))
    raise VitrailError(
        f"images of {size[0]}x{size[1]} pixels do not fit windows of {rows}x{columns} tokens: "
        f"use multiples of {strides[-1] * rows}x{strides[-1] * columns} pixels "
        f"(stride {strides[-1]} of the last stage, times its window)"
        + (
            ""
            if size[0] % strides[-1] or size[1] % strides[-1]
            else f", or a window_size that divides {size[0] // strides[-1]} and "
            f"{size[1] // strides[-1]}, the tokens of the last stage's sides"
        )
    )
