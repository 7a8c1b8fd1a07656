"""CIFAR-10-Position: half of the classes depend on position.

`replication.datasets.placed_images` places the images (position, Sec. 5.1, Fig. 2).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from replication.datasets.arrays import cifar10, cifar10_10k
from replication.datasets.placed_images import PlacedImages, in_corners

if TYPE_CHECKING:
    from replication.images.loading import Pictures
    from replication.images.opening import Split


def cifar10_position(folder: Path, split: Split, redraw: bool = False) -> PlacedImages:
    """Open CIFAR-10-Position: CIFAR-10's images, halved by averaging 2x2 pixels, in corners."""
    return _placed(cifar10(folder, split), split, redraw)


def cifar10_position_10k(folder: Path, split: Split, redraw: bool = False) -> PlacedImages:
    """Open CIFAR-10-Position of the images of `cifar10_10k`."""
    return _placed(cifar10_10k(folder, split), split, redraw)


cifar10_position_redrawn = partial(cifar10_position, redraw=True)
cifar10_position_10k_redrawn = partial(cifar10_position_10k, redraw=True)


def _placed(whole: Pictures, split: Split, redraw: bool) -> PlacedImages:
    sums = whole.images.reshape(-1, 16, 2, 16, 2, 3).sum((2, 4), dtype=np.uint16)
    halved = ((sums + 2) // 4).astype(np.uint8)  # rounded
    return in_corners(halved, whole.labels, split, redraw)
