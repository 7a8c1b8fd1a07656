"""Stand-ins for datasets of the position paper, whose position bias is known by design.

The paper measures how much a dataset's classes depend on positions (Sec. 5.2). Images are 24 pixels
wide and high. The class is the region of a photograph from which a piece was cut, at half its
scale. No pixel of a photograph is in both splits, and each seed draws its own images.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from PIL import Image

from replication.datasets.placed_images import PlacedImages, in_corners
from replication.datasets.stand_ins.regions import REGIONS, pieces
from replication.images.loading import Pictures
from replication.images.opening import Split, role, stream
from replication.images.photos import photos

SIDE = 24
IMAGES: dict[Split, int] = {"train": 1600, "val": 600}


def pieces_in_a_row(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """Three pieces of 8 pixels in a row; the class is the region of the piece in the middle.

    Only its position distinguishes the middle piece. 1,600 images are for training, 600 for
    validation.
    """
    random, labels = _drawn("pieces-in-a-row", split, seed)
    images = _grounds(len(labels), random)
    for left in (0, 16):
        images[:, 8:16, left : left + 8] = _pieces(_others(labels, random), split, random, 8)
    images[:, 8:16, 8:16] = _pieces(labels, split, random, 8)
    return Pictures(images, labels)


def pieces_in_corners(folder: Path, split: Split, seed: int = 0) -> PlacedImages:
    """A piece of 12 pixels in a corner of a black frame; the class is the region it was cut from.

    For two of the regions the class also depends on the corner: eight of the sixteen classes depend
    on position, and eight do not. 1,600 images are for training, 600 for validation.
    """
    random, labels = _drawn("pieces-in-corners", split, seed)
    return in_corners(_pieces(labels, split, random, 12), labels, role(split), seed=seed)


def _drawn(name: str, split: Split, seed: int) -> tuple[np.random.RandomState, np.ndarray]:
    """Return a stand-in's random generator, and the labels (N,) that it draws first."""
    random = stream(name, split, seed)
    return random, random.randint(len(REGIONS), size=IMAGES[role(split)])


def _others(labels: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    """Draw for each label one of the others, (N,)."""
    return (labels + random.randint(1, len(REGIONS), size=len(labels))) % len(REGIONS)


def _pieces(
    labels: np.ndarray, split: Split, random: np.random.RandomState, side: int
) -> np.ndarray:
    """Cut pieces of the photographs at half their scale: (N, side, side, 3) uint8."""
    return pieces(labels, split, random, side, halved=True, two_thirds=True)


def _grounds(count: int, random: np.random.RandomState) -> np.ndarray:
    """Cut grey crops of the whole photographs at half their scale: (count, 24, 24, 3) uint8."""
    whole = [np.asarray(Image.fromarray(p).convert("L").reduce(2)) for p in photos().values()]
    views = np.stack([sliding_window_view(photo, (SIDE, SIDE)) for photo in whole])
    drawn = (random.randint(side, size=count) for side in views.shape[:3])
    return np.repeat(views[tuple(drawn)][..., None], 3, axis=-1)
