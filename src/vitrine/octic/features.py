"""Octic features: one tensor ``(8, B, N, c)``, a plane of ``c = C / 8`` channels per basis vector.

The planes are (x0..x7) of the isotypic basis: A1, A2, B1, B2, then E's copy 1, rows 0 and 1, and
its copy 2, rows 0 and 1. With the planes in front, a group element or a Fourier transform is one
8x8 matrix on the first axis, and a linear layer multiplies whole planes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vitrine.octic.group import isotypic, transform


def per_plane(parameters: Tensor) -> Tensor:
    """Repeat the parameters of E's two copies for both rows: ``(6, ...)`` to ``(8, ...)``."""
    return torch.cat([parameters[:4], parameters[4:].repeat_interleave(2, dim=0)])


def on_planes(matrix: Tensor, x: Tensor) -> Tensor:
    """Apply ``(8, 8)`` to the first axis of ``(8, ...)``."""
    return (matrix.to(x) @ x.flatten(1)).view_as(x)


def act(x: Tensor, element: str, grid: tuple[int, int], prefix: int = 0) -> Tensor:
    """Act on features as if the element acted on their image.

    Args:
        x: ``(8, B, prefix + h w, c)``.
        element: one of `group.ELEMENTS`.
        grid: (h, w) of the tokens before.
        prefix: tokens in front that are no patches (CLS, registers).

    Returns:
        features of the shape of `x`, channels mixed in each pair of E and tokens permuted.
    """
    x = on_planes(isotypic(element), x)
    patches = x[:, :, prefix:].unflatten(2, grid).movedim(-1, 2)
    patches = transform(patches, element).movedim(2, -1).flatten(2, 3)
    return torch.cat([x[:, :, :prefix], patches], dim=2)


def to_channels(x: Tensor) -> Tensor:
    """Concatenate the planes of ``(8, B, N, c)`` as channels ``(B, N, 8c)``."""
    return x.movedim(0, 2).flatten(2)


def from_channels(x: Tensor) -> Tensor:
    """Split channels ``(B, N, 8c)`` into planes ``(8, B, N, c)``."""
    return x.unflatten(2, (8, -1)).movedim(2, 0).contiguous()
