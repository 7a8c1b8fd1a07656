"""A-WSA: lay the grid of attention windows where the energy says (Sec. 4, Eq. 17-20).

The energy of a window is the mean l2 norm of its tokens; a grid of windows is scored by G of its
windows' energies, here their l2 norm. G cannot be their mean, which is the same for every grid. A
maximum would not do either: on a uniform background, the brightest part of many an image, windows
tie, and which of them is found first has nothing to do with the object.

The mean alone leaves two exact ties, in which rounding would decide: a single window that covers an
axis holds the same tokens wherever it begins, and so does a window that an object on a uniform
background lies inside. So weights rise a little from a window's first token to its last. This
settles ties, and nothing that is not nearly one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vitrine.shift.polyphase import polyphase_energies, strongest, token_norms

Size = tuple[int, int]

RISE = 1e-3
"""By what part the weights grow along each axis of a window."""


@torch.no_grad()
def window_energies(tokens: Tensor, window: Size) -> Tensor:
    """Return the weighted mean token norm of the window that begins at each token (Eq. 18).

    Args:
        tokens: ``(B, H, W, C)``, not normalised: after LayerNorm norms are all alike.
        window: rows and columns.

    Returns:
        float64 ``(B, H, W)``.
    """
    rows, columns = window
    energies = _running_mean(token_norms(tokens), columns)
    return _running_mean(energies.mT, rows).mT


def _running_mean(x: Tensor, length: int) -> Tensor:
    """Return the weighted mean of the `length` entries from each one on, around the last axis."""
    rise = torch.arange(length, dtype=x.dtype, device=x.device) / length
    padded = torch.cat([x, x[..., : length - 1]], dim=-1)
    return padded.unfold(-1, length, 1) @ ((1 + RISE * rise) / length)


def window_offset(tokens: Tensor, window: Size) -> Tensor:
    """Choose the offset of the grid of windows (Eq. 20).

    Args:
        tokens: ``(B, H, W, C)``; H and W are multiples of `window`.
        window: rows and columns.

    Returns:
        int64 ``(B, 2)``, below `window`; rolled by it, windows begin at token 0.
    """
    return strongest(polyphase_energies(window_energies(tokens, window).square(), window))
