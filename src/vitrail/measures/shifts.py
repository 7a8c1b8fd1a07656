"""Shift, crop or erase squares of the images in a batch, each image by its own draw.

A draw depends on the seed and the image's index only, not on the other images of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vitrail.seeding import derive


def circular_shift(images: Tensor, offsets: Tensor) -> Tensor:
    """Shift ``(B, C, H, W)`` by integer offsets ``(B, 2)``: out[i] = x[(i + o) mod M]."""
    # One roll for each image: gathering by index takes five times as long.
    return torch.stack(
        [
            image.roll((-rows, -columns), (-2, -1))
            for image, (rows, columns) in zip(images, offsets.tolist(), strict=True)
        ]
    )


def zero_padded_shift(images: Tensor, offsets: Tensor, black: Tensor) -> Tensor:
    """Shift ``(B, C, H, W)`` by offsets ``(B, 2)``: out[i] = x[i + o], black outside the image.

    `black`, of shape ``(C,)``, is the value of a black pixel after normalisation.
    """
    inside = _within(images, offsets, images.shape[2:])
    return torch.where(inside, circular_shift(images, offsets), black.to(images)[:, None, None])


def crop(images: Tensor, corners: Tensor, side: int) -> Tensor:
    """Cut squares out of ``(B, C, H, W)``, with upper left corners ``(B, 2)`` that fit."""
    return circular_shift(images, corners)[..., :side, :side]


def erase_square(images: Tensor, corners: Tensor, sides: Tensor) -> Tensor:
    """Set squares of ``(B, C, H, W)`` to zero, with corners ``(B, 2)`` and sides ``(B,)``."""
    own = sides.to(images.device)[:, None]
    return images.masked_fill(_within(images, -corners, (own, own)), 0)


def draws(seed: int, purpose: str, indices: Sequence[int], *shape: int) -> Tensor:
    """Draw float64 from [0, 1): ``(B, *shape)``, each row by its sample's own generator."""
    own = (torch.Generator().manual_seed(derive(purpose, seed, index)) for index in indices)
    rows = [torch.rand(shape, dtype=torch.float64, generator=generator) for generator in own]
    return torch.stack(rows)


def integers(uniform: Tensor, largest: int | Tensor) -> Tensor:
    """Turn float64 draws from [0, 1) into integers, uniform over 0, 1 ... `largest`."""
    return (uniform * (largest + 1)).long()


def _within(images: Tensor, offsets: Tensor, sizes: Sequence[int | Tensor]) -> Tensor:
    """Return where index + offset is in 0 ... size - 1 for row and column: ``(B, 1, H, W)``."""
    along = zip(images.shape[2:], offsets.to(images.device)[:, :, None].unbind(1), strict=True)
    sources = [torch.arange(side, device=images.device) + offset for side, offset in along]
    rows, columns = ((i >= 0) & (i < size) for i, size in zip(sources, sizes, strict=True))
    return rows[:, None, :, None] & columns[:, None, None, :]
