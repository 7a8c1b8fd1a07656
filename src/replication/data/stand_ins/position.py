"""Stand-ins of the five datasets of the position paper, whose position bias is known by design.

The paper asks how much a dataset's classes depend on where things are (Sec. 5.2). Here this rises
from function to function below. Images are 24 pixels wide and high. Digit scans are pasted onto
grey crops of the photographs at half their size. Where a digit has several places they are any
pixels, not those of patches, which would favour a table of absolute positions. A test image has a
scan of its own; the photographs are those of both splits. Each seed draws a composition of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from replication.data.arrays import scans
from vitrail.images.loading import Pictures
from vitrail.images.opening import Split, stream
from vitrail.images.photos import photos, tiles

SIDE = 24
TRAIN_IMAGES = 3200
TEST_REGIONS = 600
RESERVED, SHARED = slice(0, 36), slice(36, 116)
"""Which training scans of a class are those of the pre-training, and of the other stand-ins."""

CORNERS = ((0, 0), (0, 16), (16, 0), (16, 16))

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
"""Photograph and left, upper, right and lower border of each class of `photo_regions`."""


def photo_regions(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """EuroSAT's: crops of ten regions of the photographs, in one of eight turns; which region?

    A region looks the same everywhere and in every turn, so position says nothing. 3,200 images
    train and 600 test, from tiles of 32 pixels that are in one split each.
    """
    of_each = (TRAIN_IMAGES if split == "train" else TEST_REGIONS) // len(REGIONS)
    labels = np.repeat(np.arange(len(REGIONS)), of_each)
    return Pictures(_region_crops(stream("photo-regions", split, seed), split, labels), labels)


def digits_around(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """Imagenette's: one digit of 12 pixels at any of 36 places around the middle; which?

    There is nothing else to see, so position helps little. Rows and columns are six pixels in turn,
    so patches of 4 cut a digit in each of 16 ways. 3,200 images train and 599 test.
    """
    frames = Frames("digits-around", split, seed)
    frames.paste(12, range(3, 9))
    return frames.pictures()


def digits_beside_others(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """CIFAR-10's: a digit of 12 pixels at any of 25 places around the middle; which?

    In half of the images another digit, that is not asked for, is in a corner and partly covered,
    so position tells object from clutter. 3,200 images train and 599 test.
    """
    frames = Frames("digits-beside-others", split, seed)
    frames.paste_other(probability=0.5)
    frames.paste(12, range(4, 9))
    return frames.pictures()


def few_large_digits(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """Flowers-102's: one digit of 16 pixels in the middle, with 32 training images of a class.

    So few images are learned best by where each part of a digit is, always the same. 320 images
    train and 599 test.
    """
    frames = Frames("few-large-digits", split, seed, of_class=slice(36, 68), train=320)
    frames.paste(16, (4,))
    return frames.pictures()


def digits_in_a_row(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """SVHN's: three digits in a row; which is in the middle?

    Only position says which of the three is asked for. 3,200 images train and 599 test.
    """
    frames = Frames("digits-in-a-row", split, seed)
    frames.paste_other(((8, 0),))
    frames.paste_other(((8, 16),))
    frames.paste(8, (8,))
    return frames.pictures()


def digits_and_regions(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """ImageNet's, for the checkpoint: half digits at many places, half regions; which?

    A class is a digit, of 8, 12 or 16 pixels at any place, or the region of the photographs of that
    number, as of `photo_regions`. The scans and tiles that train are those of no other stand-in: 36
    scans of a class and a third of the tiles. 3,200 images train and 599 test.
    """
    frames = Frames("digits-and-regions", split, seed, of_class=RESERVED)
    kinds = frames.random.randint(6, size=len(frames.pixels))
    for kind, size in enumerate((8, 12, 16)):
        frames.paste(size, range(SIDE - size + 1), np.flatnonzero(kinds == kind))
    pictures, regions = frames.pictures(), kinds > 2
    labels = frames.labels[regions]
    pictures.images[regions] = _region_crops(frames.random, split, labels, reserved=True)
    return pictures


def _region_crops(
    random: np.random.RandomState, split: Split, labels: np.ndarray, reserved: bool = False
) -> np.ndarray:
    """Cut a crop of the region of each label, in one of eight turns: (N, 24, 24, 3) uint8.

    Every third training tile of a region is `reserved`; the others are cut where it is False.
    """
    whole = photos()
    own = {
        label: tiles(photo, split, box, least=SIDE) for label, (photo, box) in enumerate(REGIONS)
    }
    if split == "train":
        own = {
            label: found[(np.arange(len(found)) % 3 == 2) == reserved]
            for label, found in own.items()
        }
    crops = []
    for label in labels:
        left, top, right, bottom = own[label][random.randint(len(own[label]))]
        y, x = random.randint(top, bottom - SIDE + 1), random.randint(left, right - SIDE + 1)
        crop = np.rot90(whole[REGIONS[label][0]][y : y + SIDE, x : x + SIDE], random.randint(4))
        crops.append(crop[:, ::-1] if random.randint(2) else crop)
    return np.stack(crops)


class Frames:
    """The images of a stand-in of digits in the making: crops of photographs, then what is pasted.

    `pixels` are (N, 24, 24) uint8; `asked` (N,) says which of `scans` (S, 8, 8) each asks for.
    """

    def __init__(
        self,
        name: str,
        split: Split,
        seed: int,
        of_class: slice = SHARED,
        train: int = TRAIN_IMAGES,
    ) -> None:
        self.random = stream(name, split, seed)
        images, labels = scans(split)
        if split == "train":
            each = [np.flatnonzero(labels == label)[of_class] for label in range(10)]
            own = np.sort(np.concatenate(each))
            images, labels = images[own], labels[own]
        self.scans = np.round(255 * images).astype(np.uint8)
        self.asked = np.arange(train if split == "train" else len(labels)) % len(labels)
        self.labels = labels[self.asked]
        grounds = [np.asarray(Image.fromarray(p).convert("L").reduce(2)) for p in photos().values()]
        self.pixels = np.stack([self._crop(grounds[self.random.randint(2)]) for _ in self.asked])

    def _crop(self, ground: np.ndarray) -> np.ndarray:
        top, left = (self.random.randint(side - SIDE + 1) for side in ground.shape)
        return ground[top : top + SIDE, left : left + SIDE]

    def paste(self, size: int, places: Sequence[int], images: Iterable[int] | None = None) -> None:
        """Paste the scans asked for, `size` pixels wide, at rows and columns drawn of `places`."""
        for index in range(len(self.pixels)) if images is None else images:
            top, left = self.random.choice(places, size=2)
            scan = Image.fromarray(self.scans[self.asked[index]])
            way = Image.Resampling.NEAREST if size % 8 == 0 else Image.Resampling.BILINEAR
            resized = scan.resize((size, size), way)
            self.pixels[index, top : top + size, left : left + size] = resized

    def paste_other(
        self, places: Sequence[tuple[int, int]] = CORNERS, probability: float = 1.0
    ) -> None:
        """Paste another scan, at a row and column drawn of `places`."""
        for index in np.flatnonzero(self.random.random_sample(len(self.pixels)) < probability):
            top, left = places[self.random.randint(len(places))]
            other = self.scans[self.random.randint(len(self.scans))]
            self.pixels[index, top : top + 8, left : left + 8] = other

    def pictures(self) -> Pictures:
        """Return the images in RGB, with their labels."""
        return Pictures(np.repeat(self.pixels[..., None], 3, axis=-1), self.labels)
