"""Stand-ins of the five datasets of the position paper, whose position bias is known by design.

The paper asks how much a dataset's classes depend on where things are (Sec. 5.2). Here this rises
from function to function below. Images are 24 pixels wide and high. What is asked for is, but for
EuroSAT's, the region of a piece of a photograph, at half its scale. Where a piece has several
places they are any pixels, not those of patches, which would favour a table of absolute positions;
only CIFAR-10-Position's have four corners, as in the paper (Sec. 5.1).
No pixel of a piece is in both splits, and each seed draws a composition of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from PIL import Image

from replication.datasets.arrays import scans
from replication.datasets.placed_images import PlacedImages, in_corners
from replication.datasets.stand_ins.regions import REGIONS, Part, pieces
from replication.images.loading import Pictures
from replication.images.opening import Split, role, stream
from replication.images.photos import photos

SIDE = 24
TRAIN_IMAGES = 1600
FEW_TRAIN_IMAGES = 320
CHECKPOINT_IMAGES = 3200
TEST_IMAGES = 600
CORNERS = ((0, 0), (0, 16), (16, 0), (16, 16))


def photo_regions(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """A crop of one of ten regions of photographs, turned and mirrored; the class is the region.

    A region looks the same everywhere and in every turn, so position says nothing. 1,600 images
    train and 600 test.
    """
    random, labels = _drawn("photo-regions", split, seed)
    return Pictures(_crops(labels, split, random, "shared"), labels)


def piece_around(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """A piece of 12 pixels near the middle, cut from one of ten regions of photographs: the class.

    The piece lies at one of 49 places; the rest of the image is a grey crop of a photograph, so
    position helps little. 1,600 images train and 600 test.
    """
    random, labels = _drawn("piece-around", split, seed)
    images = _grounds(len(labels), random)
    _paste(images, _pieces(labels, split, random, 12), _square(range(3, 10)), random)
    return Pictures(images, labels)


def piece_beside_another(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """A piece of 12 pixels near the middle, cut from one of ten regions of photographs: the class.

    The piece lies at one of 25 places. In half of the images a piece of another region, which does
    not count, is in a corner and partly covered: position tells object from clutter. 1,600 images
    train and 600 test.
    """
    random, labels = _drawn("piece-beside-another", split, seed)
    images = _grounds(len(labels), random)
    half = random.random_sample(len(labels)) < 0.5
    other = _pieces(_others(labels, random), split, random, 8)
    images[half] = _paste(images[half], other[half], CORNERS, random)
    _paste(images, _pieces(labels, split, random, 12), _square(range(4, 9)), random)
    return Pictures(images, labels)


def few_pieces_inside(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """A piece of 12 pixels in the middle of a crop of another region; the class is its region.

    Position says which of the two regions counts, and there are few images to learn it from: 320
    train, and 600 test.
    """
    random, labels = _drawn("few-pieces-inside", split, seed, FEW_TRAIN_IMAGES)
    images = _crops(_others(labels, random), split, random, "shared")
    return Pictures(_paste(images, _pieces(labels, split, random, 12), ((6, 6),), random), labels)


def pieces_in_a_row(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """Three pieces of 8 pixels in a row; the class is the region of the one in the middle.

    Only position says which of the three pieces counts. 1,600 images train and 600 test.
    """
    random, labels = _drawn("pieces-in-a-row", split, seed)
    images = _grounds(len(labels), random)
    for column in (0, 16):
        other = _pieces(_others(labels, random), split, random, 8)
        _paste(images, other, ((8, column),), random)
    return Pictures(_paste(images, _pieces(labels, split, random, 8), ((8, 8),), random), labels)


def pieces_in_corners(
    folder: Path, split: Split, redraw: bool = False, seed: int = 0
) -> PlacedImages:
    """A piece of 12 pixels in a corner of a black frame; the class is the region it was cut from.

    For two of the regions the corner counts, too: eight of the sixteen classes depend on position,
    and eight do not. With `redraw` a training image's corner, and with it its label, is drawn anew
    at every access, as in the authors' code. 1,600 images train, 600 test.
    """
    random, labels = _drawn("pieces-in-corners", split, seed)
    return in_corners(_pieces(labels, split, random, 12), labels, role(split), redraw, seed)


pieces_in_corners_redrawn = partial(pieces_in_corners, redraw=True)


def digits_and_regions(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """Half of the images show a handwritten digit, half a region; the class is which one.

    A class is a digit, of 8, 12 or 16 pixels at any place, or the region of that number as in
    `photo_regions`, of tiles that no other stand-in here trains on. 3,200 images train, 600 test.
    """
    random, labels = _drawn("digits-and-regions", split, seed, CHECKPOINT_IMAGES)
    images, (shapes, digits) = _crops(labels, split, random, "reserved"), scans(split)
    sizes = np.array((8, 12, 16, 0, 0, 0))[random.randint(6, size=len(labels))]
    images[sizes > 0] = _grounds(np.count_nonzero(sizes), random)
    for size in (8, 12, 16):
        (chosen,) = np.nonzero(sizes == size)
        own = [random.choice(np.flatnonzero(digits == label)) for label in labels[chosen]]
        enlarged = np.stack([_enlarged(shapes[index], size) for index in own])
        places = _square(range(SIDE - size + 1))
        images[chosen] = _paste(images[chosen], enlarged, places, random)
    return Pictures(images, labels)


def _drawn(
    name: str, split: Split, seed: int, train: int = TRAIN_IMAGES
) -> tuple[np.random.RandomState, np.ndarray]:
    """Return a stand-in's source of random numbers and its first, the label of each image (N,)."""
    random = stream(name, split, seed)
    return random, random.randint(
        len(REGIONS), size=train if role(split) == "train" else TEST_IMAGES
    )


def _others(labels: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    """Draw for each label one of the others, (N,)."""
    return (labels + random.randint(1, len(REGIONS), size=len(labels))) % len(REGIONS)


def _pieces(
    labels: np.ndarray, split: Split, random: np.random.RandomState, side: int
) -> np.ndarray:
    """Cut pieces of the photographs at half their scale: (N, side, side, 3) uint8."""
    return pieces(labels, split, random, side, halved=True, part="shared")


def _crops(
    labels: np.ndarray, split: Split, random: np.random.RandomState, part: Part
) -> np.ndarray:
    """Cut a crop of the region of each label, in one of eight turns: (N, 24, 24, 3) uint8."""
    crops = pieces(labels, split, random, SIDE, halved=False, part=part)
    turns, mirrored = random.randint(4, size=len(crops)), random.randint(2, size=len(crops))
    turned = zip(crops, turns, mirrored, strict=True)
    return np.stack([np.rot90(crop[:, :: 1 - 2 * flip], turn) for crop, turn, flip in turned])


def _grounds(count: int | np.signedinteger, random: np.random.RandomState) -> np.ndarray:
    """Cut grey crops of the whole photographs at half their scale: (count, 24, 24, 3) uint8."""
    whole = [np.asarray(Image.fromarray(p).convert("L").reduce(2)) for p in photos().values()]
    views = np.stack([sliding_window_view(photo, (SIDE, SIDE)) for photo in whole])
    drawn = (random.randint(side, size=count) for side in views.shape[:3])
    return np.repeat(views[tuple(drawn)][..., None], 3, axis=-1)


def _square(places: range) -> list[tuple[int, int]]:
    """All places whose row and column are in a range."""
    return list(itertools.product(places, places))


def _paste(
    images: np.ndarray,
    parts: np.ndarray,
    places: Sequence[tuple[int, int]],
    random: np.random.RandomState,
) -> np.ndarray:
    """Paste onto each image (N, 24, 24, 3) its part (N, side, side, 3), at one of the places.

    A place is the row and column of the part's upper left pixel. Returns the images, changed.
    """
    side, drawn = parts.shape[1], random.randint(len(places), size=len(images))
    for image, part, place in zip(images, parts, drawn, strict=True):
        top, left = places[place]
        image[top : top + side, left : left + side] = part
    return images


def _enlarged(scan: np.ndarray, size: int) -> np.ndarray:
    """Enlarge a scan (8, 8) of 0..1 to (size, size, 3) uint8."""
    way = Image.Resampling.NEAREST if size % 8 == 0 else Image.Resampling.BILINEAR
    grey = Image.fromarray(np.round(255 * scan).astype(np.uint8)).resize((size, size), way)
    return np.repeat(np.asarray(grey)[..., None], 3, axis=-1)
