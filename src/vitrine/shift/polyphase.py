"""Per-sample rolls and polyphase components (Sec. 3, Eq. 1; adaptive polyphase sampling, Eq. 23).

An offset ``(B, 2)`` of int64 rows and columns is the exponent of S in Eq. 1, one for each sample:
``rolled[i] = x[(i + offset) mod N]``. Tokens are channels-last, ``(B, H, W, C)``.

Energies are float64: their sums run over the image in an order that a shift of it changes, and
that must never decide an argmax.
"""

from __future__ import annotations

import torch
from torch import Tensor


def roll(x: Tensor, offset: Tensor) -> Tensor:
    """Roll each sample of ``(B, H, W, ...)`` by its own `offset` (Eq. 1)."""
    batch, height, width = x.shape[:3]
    first = torch.arange(batch, device=x.device)[:, None] * (height * width)
    index = (first + _rolled_index(height, width, offset)).flatten()
    # Each row is read once, so the gradient is a plain copy too.
    return x.reshape(batch * height * width, -1).index_select(0, index).view(x.shape)


def roll_image(x: Tensor, offset: Tensor) -> Tensor:
    """Roll each sample of ``(B, C, H, W)`` by its own `offset` (Eq. 1)."""
    batch, channels, height, width = x.shape
    index = _rolled_index(height, width, offset)[:, None].expand(batch, channels, height * width)
    return x.flatten(2).gather(2, index).view(x.shape)


def _rolled_index(height: int, width: int, offset: Tensor) -> Tensor:
    rows = (torch.arange(height, device=offset.device) + offset[:, :1]) % height
    columns = (torch.arange(width, device=offset.device) + offset[:, 1:]) % width
    return (rows[:, :, None] * width + columns[:, None, :]).flatten(1)  # (B, H W)


def strongest(energies: Tensor) -> Tensor:
    """Return the place of the maximum of each ``(B, H, W)``, as an offset ``(B, 2)``."""
    place = energies.flatten(1).argmax(dim=1)
    width = energies.shape[2]
    return torch.stack([place // width, place % width], dim=1)


def token_norms(tokens: Tensor) -> Tensor:
    """Return the l2 norm of each token of ``(B, H, W, C)``: float64 ``(B, H, W)``."""
    return torch.linalg.vector_norm(tokens, dim=-1, dtype=torch.float64)


def polyphase_energies(energies: Tensor, stride: tuple[int, int]) -> Tensor:
    """Sum ``(B, H, W)`` over the grid of each phase: float64 ``(B, *stride)``.

    Entry ``[b, p, q]`` belongs to the grid of rows p, p + stride, ... and columns likewise.
    """
    batch, height, width = energies.shape
    rows, columns = stride
    grids = energies.view(batch, height // rows, rows, width // columns, columns)
    return grids.sum(dim=(1, 3), dtype=torch.float64)


@torch.no_grad()
def strongest_phase(tokens: Tensor, stride: int) -> Tensor:
    """Return the phase ``(B, 2)`` of ``(B, H, W, C)`` whose tokens have the largest l2 norm."""
    return strongest(polyphase_energies(token_norms(tokens).square(), (stride, stride)))


def sample(x: Tensor, phase: Tensor, stride: int) -> Tensor:
    """Keep the grid of each sample's `phase`: ``(B, H, W, C)`` to ``(B, H / s, W / s, C)``."""
    batch, height, width, channels = x.shape
    grids = x.view(batch, height // stride, stride, width // stride, stride, channels)
    sample_index = torch.arange(batch, device=x.device)
    return grids[sample_index, :, phase[:, 0], :, phase[:, 1]]
