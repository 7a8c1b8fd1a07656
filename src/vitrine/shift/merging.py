"""A-PMerge: merge the 2x2 patches of the strongest phase (Sec. 4, Eq. 23).

Patch merging is a strided convolution (Claim 3). The paper computes it densely, at every token, and
samples the output's strongest polyphase component (APS). ``selection="fast"`` picks the phase from
the energy of the input instead, and merges once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from vitrine.shift.polyphase import roll, sample, strongest_phase
from vitrine.shift.tokenization import Selection

STRIDE = 2


def merged_patches(x: Tensor) -> Tensor:
    """Concatenate each 2x2 patch: ``(B, H, W, C)`` to ``(B, H / 2, W / 2, 4C)``, as timm orders it.

    Columns vary slowest, then rows, then channels.
    """
    batch, height, width, channels = x.shape
    patches = x.reshape(batch, height // 2, 2, width // 2, 2, channels)
    return patches.permute(0, 1, 3, 4, 2, 5).flatten(3)


def overlapping_patches(x: Tensor) -> Tensor:
    """Concatenate the 2x2 patch that begins at each token: ``(..., C)`` to ``(..., 4C)``."""
    return torch.cat(
        [x.roll((-row, -column), (1, 2)) for column in range(2) for row in range(2)], dim=-1
    )


def adaptive_merge(
    x: Tensor, project: Callable[[Tensor], Tensor], selection: Selection
) -> tuple[Tensor, Tensor]:
    """Merge the strongest phase (Eq. 23).

    Args:
        x: tokens ``(B, H, W, C)``, H and W even.
        project: ``(..., 4C)`` to ``(..., D)``, whose output's energy decides in "paper".
        selection: "paper" or "fast", see the module.

    Returns:
        ``(B, H / 2, W / 2, D)`` and the chosen phase ``(B, 2)``.
    """
    if selection == "fast":
        phase = strongest_phase(x, STRIDE)
        return project(merged_patches(roll(x, phase))), phase
    dense = project(overlapping_patches(x))
    phase = strongest_phase(dense, STRIDE)
    return sample(dense, phase, STRIDE), phase
