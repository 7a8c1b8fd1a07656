"""Stand-ins for the shift paper's datasets: a piece of one region of a photograph on another.

As in natural images, the class does not depend on positions, so a model without absolute positions
loses no information. A circular shift makes a seam in the ground visible, since pixels that leave
the frame at one side come back at the other. A frame has few pixels, so that after enlargement a
model's patch shows at most one of them; in the paper a patch shows 0.57 pixels of a CIFAR image.
There are so few training images that a micro model learns all of them, and gains little from twice
as many steps. The three stand-ins differ in their classes and in scale. No pixel of a photograph is
in both splits, and each seed draws other pieces.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from replication.datasets.stand_ins.regions import pieces
from replication.images.loading import Pictures
from replication.images.opening import Split, role, stream

IMAGES: dict[Split, int] = {"train": 1500, "val": 1000}
SIDE = 8
CROPPED_SIDE = 10
THING = 4
KINDS = (0, 2, 4, 6, 8)
"""Indices of the regions, of ten, from which things and their grounds are cut."""


def two_pieces(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """A square of one region of a photograph on a piece of another; the class is the pair.

    The square has 4x4 of the frame's 8x8 pixels. Its position is random and circular: pixels beyond
    the border come back at the other side. The class does not depend on which of the two regions is
    on top, so five regions give 10 classes. The photographs are at half their scale. 1,500 images
    are for training and 1,000 for validation, as in `piece_on_piece` and `piece_to_crop`.
    """
    thing, ground, random = _kinds("two-pieces", split, seed)
    larger, smaller = np.maximum(thing, ground), np.minimum(thing, ground)
    labels = larger * (larger - 1) // 2 + smaller
    return Pictures(_composed(thing, ground, split, random, SIDE, halved=True), labels)


def piece_on_piece(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """The images of `two_pieces`; the class is the ordered pair of regions: 20 classes."""
    thing, ground, random = _kinds("piece-on-piece", split, seed)
    labels = thing * (len(KINDS) - 1) + ground - (ground > thing)
    return Pictures(_composed(thing, ground, split, random, SIDE, halved=True), labels)


def piece_to_crop(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """As `piece_on_piece`, but of 10x10 pixels, of which a model sees 8x8.

    The photographs are at their own scale. Models see the central four fifths of the frame, so two
    crops of an image differ in real content at their borders, as the shift paper's crops of
    ImageNet.
    """
    thing, ground, random = _kinds("piece-to-crop", split, seed)
    labels = thing * (len(KINDS) - 1) + ground - (ground > thing)
    return Pictures(_composed(thing, ground, split, random, CROPPED_SIDE, halved=False), labels)


def _kinds(
    name: str, split: Split, seed: int
) -> tuple[np.ndarray, np.ndarray, np.random.RandomState]:
    """Draw for each image two different kinds, of the thing (N,) and of its ground (N,).

    Also returns the stand-in's random generator.
    """
    random, count = stream(name, split, seed), IMAGES[role(split)]
    thing = random.randint(len(KINDS), size=count)
    return thing, (thing + random.randint(1, len(KINDS), size=count)) % len(KINDS), random


def _composed(
    thing: np.ndarray,
    ground: np.ndarray,
    split: Split,
    random: np.random.RandomState,
    side: int,
    halved: bool,
) -> np.ndarray:
    """Put a square of each thing's kind onto a piece of its ground's: (N, side, side, 3) uint8."""
    things, images = (
        pieces(np.array(KINDS)[kind], split, random, width, halved=halved)
        for kind, width in ((thing, THING), (ground, side))
    )
    first = random.randint(side, size=(len(images), 2))
    rows, columns = np.moveaxis((first[..., None] + np.arange(THING)) % side, 1, 0)
    images[np.arange(len(images))[:, None, None], rows[:, :, None], columns[:, None, :]] = things
    return images
