"""The two real photographs that scikit-learn contains, whole and in parts.

They are used for stand-in datasets, and for measurements on natural images without a download.
"""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

from replication.images.opening import members
from vitrail.errors import VitrailError

if TYPE_CHECKING:
    from replication.images.opening import Split

Box = tuple[int, int, int, int]
"""Left, top, right and bottom in a photograph, in pixels."""

TILE = 32
"""Side in pixels of the tiles into which photographs are cut; every third is for validation."""


def photos() -> dict[str, np.ndarray]:
    """Return the photographs `china` and `flower`, each (427, 640, 3) uint8, RGB."""
    bunch = load_sample_images()
    return dict(zip((Path(file).stem for file in bunch.filenames), bunch.images, strict=True))


@functools.cache
def photo(name: str) -> Image.Image:
    """Return a photograph as a PIL image."""
    return Image.fromarray(photos()[name])


def photo_centre(name: str, size: int) -> np.ndarray:
    """Return the largest central square of a photograph, scaled to (size, size, 3) uint8, RGB."""
    width, height = photo(name).size
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    return np.asarray(photo(name).resize((size, size), box=(left, top, left + side, top + side)))


def photo_crops(n: int, size: int, seed: int) -> np.ndarray:
    """Cut crops at random places, from the two photographs in turn: (n, size, size, 3) uint8, RGB.

    Raises VitrailError if a crop would be larger than a photograph.
    """
    images = list(photos().values())
    height, width, _ = images[0].shape
    if not 1 <= size <= min(height, width):
        raise VitrailError(
            f"crops of {size} pixels cannot be cut from photographs of {width}x{height}; "
            f"choose a size from 1 to {min(height, width)}"
        )
    random, crops = np.random.RandomState(seed), np.empty((n, size, size, 3), dtype=np.uint8)
    for index in range(n):
        top, left = random.randint(height - size + 1), random.randint(width - size + 1)
        crops[index] = images[index % len(images)][top : top + size, left : left + size]
    return crops


def tiles(name: str, split: Split, box: Box | None = None, least: int = 1) -> np.ndarray:
    """Return the boxes of a split's tiles, clipped to `box`: (N, 4) int.

    Tiles that are less than `least` pixels wide or high are left out. No pixel is in both splits
    (but resizing a tile by its box may also read the pixels next to the box).
    """
    left, top, right, bottom = box or (0, 0, *photo(name).size)
    corners = itertools.product(
        range(top // TILE * TILE, bottom, TILE), range(left // TILE * TILE, right, TILE)
    )
    train, val = list[Box](), list[Box]()
    for y, x in corners:
        tile = (max(x, left), max(y, top), min(x + TILE, right), min(y + TILE, bottom))
        if min(tile[2] - tile[0], tile[3] - tile[1]) >= least:
            (train if (x + y) // TILE % 3 else val).append(tile)
    return np.array(members(train, val, split))
