"""UperNet's pyramid pooling, made shift-equivariant in two ways.

It averages the coarsest features over grids of 1, 2, 3 and 6 bins a side, which are fixed to the
map: a shift moves the features from bin to bin. The paper does not say what it does about that.
Both ways here have the parameters of the original.

- ``anchor``: the bins are laid where the features say, as A-WSA lays a single window that covers
  the map (Eq. 20): roll there, pool as ever, roll back.
- ``box``: each token gets the mean of the box around it that is as large as a bin.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from vitrine.shift.windows import window_offset

Pooling = Literal["anchor", "box"]


@torch.no_grad()
def anchor(tokens: Tensor) -> Tensor:
    """Choose where the bins begin.

    Tokens count by their l1 norm: the norm at the end of a stage leaves all l2 norms alike. The
    strongest token alone would not do, as those of a uniform background tie.

    Args:
        tokens: ``(B, C, H, W)``.

    Returns:
        int64 ``(B, 2)``, rows and columns.
    """
    norms = torch.linalg.vector_norm(tokens, ord=1, dim=1, dtype=torch.float64)
    return window_offset(norms[..., None], (tokens.shape[2], tokens.shape[3]))


def box_means(x: Tensor, bins: int) -> Tensor:
    """Average ``(B, C, H, W)`` over the box around each token, of a bin's size, around borders."""
    rows, columns = (-(-side // bins) for side in x.shape[2:])
    top, left = (rows - 1) // 2, (columns - 1) // 2
    padding = (left, columns - 1 - left, top, rows - 1 - top)
    return functional.avg_pool2d(functional.pad(x, padding, mode="circular"), (rows, columns), 1)
