"""The controlled setting of the position paper: half of the classes depend on position (Sec. 5.1).

By default the position of an image is drawn once, from a fixed seed, and is part of the dataset.
The authors' code draws the corner, and with it the label, whenever a training image is read
(`Redrawn`).
"""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image

from replication.images.loading import Pictures
from replication.images.opening import SPLITS, Split

SEED = 0
ORIGINALS = np.random.RandomState(SEED).permutation(10)
"""The original classes in a random order; the first two become classes that depend on position."""

DEPENDENT = range(8)
"""Classes that depend on position: 4 * (index in `ORIGINALS`) + corner. The classes of the other
originals follow. Corners from 0 to 3: upper left, upper right, lower left, lower right."""


class PlacedImages(Pictures):
    """Images in black squares of `side` pixels; `places` (N, 2) has the row and column of each."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, places: np.ndarray, side: int):
        super().__init__(images, labels)
        self.places, self.side = places, side

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return self.framed(index, *self.places[index]), int(self.labels[index])

    def framed(self, index: int, top: int, left: int) -> Image.Image:
        """Return an image in its frame with its upper left pixel at row `top`, column `left`."""
        image = self.images[index]
        frame = np.zeros((self.side, self.side, 3), dtype=np.uint8)
        frame[top : top + image.shape[0], left : left + image.shape[1]] = image
        return Image.fromarray(frame)


class Redrawn(PlacedImages):
    """Images whose corner torch's generator draws at every access; the label depends on it."""

    redraws = True

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        corner, label = int(torch.randint(4, ())), int(self.labels[index])
        top, left = (place * self.side // 2 for place in divmod(corner, 2))
        drawn = 4 * (label // 4) + corner if label in DEPENDENT else label
        return self.framed(index, top, left), drawn


def original_of(label: int) -> int:
    """Return the class in the original dataset for a class of `in_corners`."""
    return int(ORIGINALS[label // 4 if label in DEPENDENT else label - 6])


def in_corners(
    images: np.ndarray, labels: np.ndarray, split: Split, redraw: bool = False, seed: int = SEED
) -> PlacedImages:
    """Place each image in a random corner of a frame twice its size: ten classes become sixteen.

    Images are (N, s, s, 3) uint8, labels (N,) in range(10). Corners depend on the split and `seed`;
    with `redraw`, corners of training images are drawn again at every access.
    """
    # A separate stream for each split; NumPy guarantees that it never changes (NEP 19).
    random = np.random.RandomState([seed, SPLITS.index(split)])
    corners = random.randint(4, size=len(labels))
    rank = np.argsort(ORIGINALS)[labels]
    side = images.shape[1]
    kind = Redrawn if redraw and split == "train" else PlacedImages
    return kind(
        images,
        labels=np.where(rank < 2, 4 * rank + corners, rank + 6),
        places=np.stack([corners // 2, corners % 2], axis=1) * side,
        side=2 * side,
    )
