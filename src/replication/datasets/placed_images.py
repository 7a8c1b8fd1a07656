"""The controlled setting of the position paper: half of the classes depend on position (Sec. 5.1).

A sample's place is drawn once, from a fixed seed: it is part of the data. The authors' code draws
the corner anew, and with it the label, whenever a training image is read (`Redrawn`).
"""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image

from replication.images.loading import Pictures
from replication.images.opening import SPLITS, Split

SEED = 0
ORIGINALS = np.random.RandomState(SEED).permutation(10)
"""The original classes as they are numbered anew: the first two depend on position."""

DEPENDENT = range(8)
"""Classes that depend on position: 4 * (place in `ORIGINALS`) + corner. The classes of the other
originals follow. Corners count as one reads: upper left, upper right, lower left, lower right."""


class PlacedImages(Pictures):
    """Images in a black square frame of `side` pixels, each at its own row and column (N, 2)."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, places: np.ndarray, side: int):
        super().__init__(images, labels)
        self.places, self.side = places, side

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return self.framed(index, *self.places[index]), int(self.labels[index])

    def framed(self, index: int, top: int, left: int) -> Image.Image:
        """An image in its frame, at another place than its own."""
        image = self.images[index]
        frame = np.zeros((self.side, self.side, 3), dtype=np.uint8)
        frame[top : top + image.shape[0], left : left + image.shape[1]] = image
        return Image.fromarray(frame)


class Redrawn(PlacedImages):
    """Images in corners that torch's generator draws at every access, and labels that follow."""

    redraws = True

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        corner, label = int(torch.randint(4, ())), int(self.labels[index])
        top, left = (place * self.side // 2 for place in divmod(corner, 2))
        drawn = 4 * (label // 4) + corner if label in DEPENDENT else label
        return self.framed(index, top, left), drawn


def original_of(label: int) -> int:
    """Return the class, in the original dataset, of a class that `in_corners` has made."""
    return int(ORIGINALS[label // 4 if label in DEPENDENT else label - 6])


def in_corners(
    images: np.ndarray, labels: np.ndarray, split: Split, redraw: bool = False, seed: int = SEED
) -> PlacedImages:
    """Place each image in a random corner of a frame twice its size: ten classes become sixteen.

    Images are (N, s, s, 3) uint8, labels (N,) in range(10); the split and `seed` decide corners,
    unless `redraw` has those of training images drawn anew at every access.
    """
    # A stream of its own for each split, which NumPy promises never to change (NEP 19).
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
