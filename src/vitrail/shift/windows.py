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
from torch import Tensor

from vitrail.measures.margins import note_margin
from vitrail.shift.polyphase import (
    FIXED_POINT,
    arrangement,
    fixed_point,
    full_precision,
    grids,
    polyphase_energies,
    settle,
    strongest,
    token_norms,
)
from vitrail.shift.torus import Size


@torch.no_grad()
def window_energies(tokens: Tensor, window: Size) -> Tensor:
    """Return the mean token norm of the window that begins at each token (shift, Eq. 17-18).

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
    return sums.to(dtype) / (FIXED_POINT * rows * columns)


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
def window_offsets(tokens: Tensor, windows: Sequence[Size], anchored: bool = False) -> list[Tensor]:
    """Return `window_offset` of windows of several sizes, whose norms are taken once."""
    with full_precision(tokens):
        norms = token_norms(tokens)
        places = arrangement(norms)
    units = fixed_point(norms)
    offsets = []
    for window in windows:
        means = _window_means(units, window, norms.dtype)
        scores = polyphase_energies(means.square(), window)
        by_grid = grids(places, window)
        scores = settle(scores, by_grid.amax(dim=(3, 4)) - places.mean(dim=(1, 2))[:, None, None])
        note_margin(scores, norms.dtype)
        if anchored:
            wins = scores == scores.amax(dim=(1, 2), keepdim=True)
            scores = places.where(wins.repeat(1, *by_grid.shape[3:]), -torch.inf)
        offsets.append(strongest(scores))
    return offsets
