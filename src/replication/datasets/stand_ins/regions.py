"""Pieces of ten regions of two photographs, from which stand-ins are composed.

The regions are the classes: for example sky, lake, roof, petals. No pixel of a photograph is in
both splits (`replication.images.photos.tiles`).
"""

from __future__ import annotations

import numpy as np

from replication.images.opening import Split, role
from replication.images.photos import TILE, photos, tiles

REGIONS = (
    ("china", (330, 0, 640, 130)),  # sky
    ("china", (355, 215, 545, 325)),  # lake
    ("china", (555, 160, 640, 427)),  # pine
    ("china", (350, 300, 560, 427)),  # bush
    ("china", (0, 345, 270, 427)),  # trees
    ("china", (110, 55, 310, 135)),  # roof
    ("china", (85, 165, 330, 245)),  # upper facade
    ("china", (75, 245, 350, 340)),  # lower facade
    ("flower", (190, 100, 430, 340)),  # petals
    ("flower", (0, 60, 140, 340)),  # leaves
)
"""Photograph and left, upper, right and lower border of each region."""


def pieces(
    regions: np.ndarray,
    split: Split,
    random: np.random.RandomState,
    side: int,
    *,
    halved: bool,
    two_thirds: bool = False,
) -> np.ndarray:
    """Cut a square at a random position in a tile of each of `regions`: (N, side, side, 3) uint8.

    `regions` (N,) are indices of `REGIONS`. With `halved`, a pixel is the mean of 2x2 pixels of a
    photograph. Tiles with less than half a side in the region are left out. With `two_thirds`,
    every third training tile is left out, too.
    """
    step = 2 if halved else 1
    scaled = {name: _halved(pixels) if halved else pixels for name, pixels in photos().items()}
    cut = np.empty((len(regions), side, side, 3), dtype=np.uint8)
    for region, (name, box) in enumerate(REGIONS):
        (chosen,) = np.nonzero(regions == region)
        boxes = tiles(name, split, box, least=max(step * side, TILE // 2))
        if two_thirds and role(split) == "train":
            boxes = boxes[np.arange(len(boxes)) % 3 != 2]
        left, top, right, bottom = boxes[random.randint(len(boxes), size=len(chosen))].T
        x = random.randint(left, right - step * side + 1)[:, None] + step * np.arange(side)
        y = random.randint(top, bottom - step * side + 1)[:, None] + step * np.arange(side)
        cut[chosen] = scaled[name][y[:, :, None], x[:, None, :]]
    return cut


def _halved(pixels: np.ndarray) -> np.ndarray:
    """Return the rounded mean of each 2x2 pixels, at their upper left pixel: uint8."""
    whole = pixels.astype(np.float32)
    sums = whole[:-1, :-1] + whole[1:, :-1] + whole[:-1, 1:] + whole[1:, 1:]
    return np.round(sums / 4).astype(np.uint8)
