"""Stand-ins of the shift paper's datasets: pieces of ten regions of two photographs.

As in natural images a place says nothing about the class, so a model that gives up absolute
positions loses no information. A circular shift shows a seam, since what leaves a piece at one side
comes back at the other. A frame is of few pixels, so that a model's patch is one of them at most
after enlargement: of CIFAR's images a patch is 0.57 pixels in the paper. All three are of the same
photographs, and differ in what is asked for and in scale. No pixel of a photograph is in both
splits, and each seed draws other pieces.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from replication.data.stand_ins.position import REGIONS
from vitrail.images.loading import Pictures
from vitrail.images.opening import Split, stream
from vitrail.images.photos import photos, tiles

IMAGES: dict[Split, int] = {"train": 3000, "val": 1000}
SIDE = 8
CROPPED_SIDE = 10
THING = 4
KINDS = (0, 2, 4, 6, 8)
"""Of the ten regions those that things and their grounds are of."""


def photo_pieces(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """CIFAR-10's: a piece of 8x8 pixels of one of ten regions of photographs; which region?

    The photographs are halved, so a piece is cut of 16x16 of their pixels, anywhere in a tile.
    """
    random, count = stream("photo-pieces", split, seed), IMAGES[split]
    labels = random.randint(len(REGIONS), size=count)
    return _pictures(_pieces(labels, split, random, SIDE, halved=True), labels)


def pieces_on_pieces(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """CIFAR-100's: a square of one region on a piece of another; which two? 20 classes.

    The square has 4x4 of the frame's 8x8 pixels and lies anywhere, beyond the border, too: what
    leaves the frame comes back at the other side. Both are of five regions of halved photographs.
    """
    random, count = stream("pieces-on-pieces", split, seed), IMAGES[split]
    labels = random.randint(len(KINDS) * (len(KINDS) - 1), size=count)
    thing, ground = np.divmod(labels, len(KINDS) - 1)
    ground += ground >= thing
    things, pixels = (
        _pieces(np.array(KINDS)[own], split, random, side, halved=True)
        for own, side in ((thing, THING), (ground, SIDE))
    )
    first = random.randint(SIDE, size=(count, 2))
    rows, columns = np.moveaxis((first[..., None] + np.arange(THING)) % SIDE, 1, 0)
    pixels[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]] = things
    return _pictures(pixels, labels)


def pieces_to_crop(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """ImageNet's: a piece of 10x10 pixels of one of ten regions, of which a model sees 8x8.

    It is cut of photographs at their own scale. Models see the central four fifths of the frame,
    so two crops of an image show other real content at their borders, as the shift paper's crops
    of ImageNet do. The classes are those of `photo-pieces`.
    """
    random, count = stream("pieces-to-crop", split, seed), IMAGES[split]
    labels = random.randint(len(REGIONS), size=count)
    return _pictures(_pieces(labels, split, random, CROPPED_SIDE, halved=False), labels)


def _pictures(pixels: np.ndarray, labels: np.ndarray) -> Pictures:
    return Pictures(np.round(pixels).astype(np.uint8), labels)


def _pieces(
    regions: np.ndarray, split: Split, random: np.random.RandomState, side: int, halved: bool
) -> np.ndarray:
    """Squares anywhere in tiles of regions, given by index: (N, side, side, 3) float32, 0..255.

    With `halved` a pixel is the mean of 2x2 pixels of a photograph.
    """
    step = 2 if halved else 1
    scaled = {name: _halved(pixels) if halved else pixels for name, pixels in photos().items()}
    pieces = np.empty((len(regions), side, side, 3), dtype=np.float32)
    for region, (name, box) in enumerate(REGIONS):
        (chosen,) = np.nonzero(regions == region)
        boxes = tiles(name, split, box, least=2 * SIDE)
        left, top, right, bottom = boxes[random.randint(len(boxes), size=len(chosen))].T
        x = random.randint(left, right - step * side + 1)[:, None] + step * np.arange(side)
        y = random.randint(top, bottom - step * side + 1)[:, None] + step * np.arange(side)
        pieces[chosen] = scaled[name][y[:, :, None], x[:, None, :]]
    return pieces


def _halved(pixels: np.ndarray) -> np.ndarray:
    """At each pixel of a photograph the mean of 2x2 pixels from there on, float32, 0..255."""
    whole = pixels.astype(np.float32)
    return (whole[:-1, :-1] + whole[1:, :-1] + whole[:-1, 1:] + whole[1:, 1:]) / 4
