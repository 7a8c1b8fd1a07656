"""Square grids with a symmetry, unfolded from one free quarter (Secs. 3.3.1 and C.1).

A filter of the patch embedding, and a plane of the position encoding, must transform like the irrep
that it feeds: its top-left quarter is free and the group's eight images of it fill the square. A
plane of A or B needs a quarter each, the two rows of a copy of E share one.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Of A1, A2, B1, B2: what a quarter turn and a mirroring multiply the grid by.
_TURN_AND_MIRROR = ((1, 1), (1, -1), (-1, 1), (-1, -1))


def unfold_quarters(quarters: Tensor) -> Tensor:
    """Unfold the quarters of all planes.

    Args:
        quarters: ``(6, ..., q, q)`` of A1, A2, B1, B2 and E's two copies.

    Returns:
        ``(8, ..., 2q, 2q)``: plane i is what the group turns into its isotypic matrix's row i.
    """
    lines = [
        _unfold_line(quarter, turn, mirror)
        for quarter, (turn, mirror) in zip(quarters[:4], _TURN_AND_MIRROR, strict=True)
    ]
    pairs = [row for quarter in quarters[4:] for row in _unfold_pair(quarter)]
    return torch.stack(lines + pairs)


def _unfold_line(quarter: Tensor, turn: int, mirror: int) -> Tensor:
    turned = [quarter.rot90(k, (-2, -1)) for k in range(4)]
    left = torch.cat([turned[0], turn * turned[1]], dim=-2)
    right = torch.cat([turn * turned[3], turned[2]], dim=-2)
    grid = torch.cat([left, right], dim=-1)
    return grid + mirror * grid.flip(-1)


def _unfold_pair(quarter: Tensor) -> tuple[Tensor, Tensor]:
    left = torch.cat([quarter, quarter.flip(-2)], dim=-2)
    row = torch.cat([left, -left.flip(-1)], dim=-1)
    return row, row.rot90(1, (-2, -1))
