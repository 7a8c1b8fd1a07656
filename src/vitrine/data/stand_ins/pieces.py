"""What stand-ins are composed of: digit scans and tiles of two photographs, each in one split."""

from __future__ import annotations

import zlib

import numpy as np
from sklearn.datasets import load_digits

from vitrine.data.arrays import TRAIN_FRACTION
from vitrine.data.opening import Split, stratified_split
from vitrine.data.photos import photos

TILE = 32
"""Side in pixels of the tiles into which photographs are cut; every third is for the test."""


def scans(split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Return the digit scans of a split, (N, 8, 8) float32 in 0..1, and their labels, (N,) int.

    No scan is in both splits.
    """
    bundled = load_digits()
    train, val = stratified_split(bundled.target.tolist(), TRAIN_FRACTION)
    chosen = train if split == "train" else val
    return (bundled.images[chosen] / 16).astype(np.float32), bundled.target[chosen]


def tiles(photo: str, split: Split, box: tuple[int, int, int, int] | None = None) -> np.ndarray:
    """Return the tiles of a photograph that belong to a split, cut to `box`.

    No pixel is in both splits (a crop that is resized by its `box` may weigh the row beside it).
    `box` is left, upper, right and lower border in pixels.

    Returns:
        (N, 4) int: left, upper, right and lower border of each tile.
    """
    height, width, _ = photos()[photo].shape
    left, top, right, bottom = box or (0, 0, width, height)
    found = [
        (max(x, left), max(y, top), min(x + TILE, right), min(y + TILE, bottom))
        for y in range(top // TILE * TILE, bottom, TILE)
        for x in range(left // TILE * TILE, right, TILE)
        if ((x + y) // TILE % 3 == 0) == (split == "val")
    ]
    return np.array(found)


def stream(name: str, split: Split) -> np.random.RandomState:
    """Return the random numbers that compose one split of the stand-in of this name.

    NumPy promises that they never change (NEP 19).
    """
    return np.random.RandomState(zlib.crc32(f"{name}/{split}".encode()))
