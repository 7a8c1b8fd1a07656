"""CIFAR-10-Position and the same of digits: half of the classes depend on position.

`replication.datasets.placed_images` places the images (position, Sec. 5.1, Fig. 2).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from replication.datasets.arrays import Digits, cifar10
from replication.datasets.placed_images import PlacedImages, in_corners
from replication.images.opening import role

if TYPE_CHECKING:
    from replication.images.opening import Split


def cifar10_position(folder: Path, split: Split, redraw: bool = False) -> PlacedImages:
    """Open CIFAR-10-Position: CIFAR-10's images, halved by means of 2x2 pixels, in corners."""
    whole = cifar10(folder, split)
    sums = whole.images.reshape(-1, 16, 2, 16, 2, 3).sum((2, 4), dtype=np.uint16)
    halved = ((sums + 2) // 4).astype(np.uint8)  # rounded
    return in_corners(halved, whole.labels, split, redraw)


def digits_position(
    folder: Path, split: Split, redraw: bool = False, seed: int = 0
) -> PlacedImages:
    """A digit scan in a random corner of a black frame: which digit, and of two of them, where?

    The class of two digits is that of their corner, too: eight of the sixteen classes depend on
    position, and eight do not. With `redraw` a training image's corner, and with it its label, is
    drawn anew at every access, as in the authors' code. Each seed draws corners of its own.
    """
    scans = Digits(split)
    return in_corners(scans.images, scans.labels, role(split), redraw, seed)


cifar10_position_redrawn = partial(cifar10_position, redraw=True)
digits_position_redrawn = partial(digits_position, redraw=True)
