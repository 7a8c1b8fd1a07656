"""A-RPE: relative distances on a circle (Sec. 4, Eq. 24, Fig. 3).

A linear distance ``p_q - p_k`` takes 2M - 1 values and changes when tokens wrap around the border;
``(p_q - p_k) mod M`` takes M and does not.
"""

from __future__ import annotations

import torch
from torch import Tensor


def linear_distance(queries: Tensor, keys: Tensor, period: int) -> Tensor:
    """Return ``p_q - p_k + period - 1`` of int ``(Q,)`` and ``(K,)``: ``(Q, K)`` (Eq. 12)."""
    return queries[:, None] - keys[None, :] + period - 1


def circular_distance(queries: Tensor, keys: Tensor, period: int) -> Tensor:
    """Return ``(p_q - p_k) mod period`` of int ``(Q,)`` and ``(K,)``: ``(Q, K)`` (Eq. 24)."""
    return (queries[:, None] - keys[None, :]) % period


def fold(table: Tensor, period: int) -> Tensor:
    """Fold a table of linear distances into one of circular distances.

    Each circular distance takes the embedding of the linear distance of the same residue that is
    nearest to zero, of two equally near ones their mean: a trained model keeps what it knows of
    neighbours.

    Args:
        table: ``(2M - 1, C)``, at row ``d + M - 1`` the embedding of distance d.
        period: M.

    Returns:
        ``(M, C)``.
    """
    distance = torch.arange(period, device=table.device)
    near = torch.where(2 * distance > period, distance - period, distance)
    folded = table[near + period - 1]
    if period % 2 == 0:
        half = period // 2
        folded = folded.clone()
        folded[half] = (table[half + period - 1] + table[period - 1 - half]) / 2
    return folded
