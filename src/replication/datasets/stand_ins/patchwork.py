"""The stand-in `patchwork` of datasets with masks, for segmenters and dense probes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image, ImageColor
from torch.utils.data import Dataset

from replication.datasets.stand_ins.regions import pieces
from replication.datasets.stand_ins.shift import KINDS
from replication.images.opening import Split, role, stream

COUNTS: dict[Split, int] = {"train": 100, "val": 60}
HEIGHT = 64
WIDTHS = (64, 72, 80, 88, 96)
SIDE = 24
LEAST = 12
THINGS = 6
"""Number of smaller squares on top of the squares that cover a scene."""

CLASSES = ("sky", "pine", "trees", "facade", "petals")
"""Names of `shift.KINDS`."""

PALETTE = tuple(ImageColor.getrgb(f"hsv({hue}, 90%, 85%)") for hue in range(180, 360, 36))
"""The colour of each class in pictures of masks."""


class ComposedScenes(Dataset[tuple[Image.Image, np.ndarray]]):
    """Scenes in memory, given as pixels (H, W, 3) uint8 and masks (H, W) uint8 of classes."""

    def __init__(self, scenes: Iterable[tuple[np.ndarray, np.ndarray]]):
        self.scenes = list(scenes)

    def __len__(self) -> int:
        return len(self.scenes)

    def __getitem__(self, index: int) -> tuple[Image.Image, np.ndarray]:
        """Return an RGB image and its mask, (H, W) uint8."""
        pixels, mask = self.scenes[index]
        return Image.fromarray(pixels), mask


def patchwork(folder: Path, split: Split, seed: int = 0) -> ComposedScenes:
    """Scenes of squares that are cut from the five regions of photographs of `two_pieces`.

    The class of a pixel is its region. Regions share colours, and a square may be anywhere, so
    neither a pixel's colour nor its position determines the class: a segmenter has to use texture.
    No pixel of a photograph is in both splits, and each seed draws other scenes.
    """
    random = stream("patchwork", split, seed)
    return ComposedScenes(compose(split, random) for _ in range(COUNTS[role(split)]))


def compose(split: Split, random: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    """Compose the next scene: (H, W, 3) uint8, and its mask (H, W) uint8 of classes."""
    height, width = HEIGHT, int(random.choice(WIDTHS))
    pixels = np.empty((height, width, 3), dtype=np.uint8)
    mask = np.empty((height, width), dtype=np.uint8)
    first_row, first_column = -random.randint(SIDE, size=2)
    rows, columns = range(first_row, height, SIDE), range(first_column, width, SIDE)
    squares = [(top, left, SIDE) for top, left in itertools.product(rows, columns)]
    for side in random.randint(LEAST, SIDE + 1, size=THINGS):
        top, left = random.randint(height - side + 1), random.randint(width - side + 1)
        squares.append((top, left, side))
    labels = random.randint(len(KINDS), size=len(squares))
    cut = pieces(np.array(KINDS)[labels], split, random, SIDE, halved=False)
    for piece, label, (top, left, side) in zip(cut, labels, squares, strict=True):
        y, x = max(top, 0), max(left, 0)
        place = pixels[y : top + side, x : left + side]  # clipped to the scene
        place[:] = piece[y - top :, x - left :][: place.shape[0], : place.shape[1]]
        mask[y : top + side, x : left + side] = label
    return pixels, mask
