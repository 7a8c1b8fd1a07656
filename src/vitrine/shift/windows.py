"""A-WSA: lay the grid of attention windows where the energy says (Sec. 4, Eq. 17-20).

The energy of a window is the mean l2 norm of its tokens; a grid of windows is scored by G of its
windows' energies, here their l2 norm. G cannot be their mean, which is the same for every grid. A
maximum would not do either: on a uniform background, the brightest part of many an image, windows
tie, and which of them is found first has nothing to do with the object.

Where one window covers an axis, all grids hold the same tokens and tie, yet the relative position
embedding inside the window tells them apart. There the box shrinks to one token: the strongest
token is the anchor.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from vitrine.shift.polyphase import polyphase_energies, strongest, token_norms

Size = tuple[int, int]


@torch.no_grad()
def window_energies(tokens: Tensor, window: Size) -> Tensor:
    """Return the mean token norm of the window that begins at each token (Eq. 18).

    Args:
        tokens: ``(B, H, W, C)``, not normalised: after LayerNorm norms are all alike.
        window: rows and columns.

    Returns:
        float64 ``(B, H, W)``.
    """
    norms = token_norms(tokens)[:, None]
    padded = functional.pad(norms, (0, window[1] - 1, 0, window[0] - 1), mode="circular")
    return functional.avg_pool2d(padded, window, stride=1).squeeze(1)


def window_offset(tokens: Tensor, window: Size, modulo: Size | None = None) -> Tensor:
    """Choose the offset of the grid of windows (Eq. 20).

    Args:
        tokens: ``(B, H, W, C)``; H and W are multiples of `window` and of `modulo`.
        window: rows and columns.
        modulo: the grids to choose from, if not the `window` of them: a common multiple of the
            window and of a later stride settles the phase of both.

    Returns:
        int64 ``(B, 2)``, below `modulo`; rolled by it, windows begin at token 0.
    """
    size = (tokens.shape[1], tokens.shape[2])
    rows, columns = (1 if w == m else w for w, m in zip(window, size, strict=True))
    energies = window_energies(tokens, (rows, columns))
    return strongest(polyphase_energies(energies.square(), window if modulo is None else modulo))
