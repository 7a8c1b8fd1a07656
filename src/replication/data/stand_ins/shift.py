"""Stand-ins of the shift paper's datasets: one digit at a random place on a piece of a photograph.

As in natural images a place says nothing about the class, so a model that gives up absolute
positions loses no information. What leaves the frame at one side comes back at the other. The frame
is enlarged to a model's input, as CIFAR's images are in the paper. No scan and no pixel of a
photograph is in both splits; 6,000 images train, so that few epochs suffice, and 1,000 test.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from replication.data.arrays import scans
from vitrail.images.loading import Pictures
from vitrail.images.opening import Split, stream
from vitrail.images.photos import photos, tiles

IMAGES: dict[Split, int] = {"train": 6000, "val": 1000}
SCAN = 8
GROUND = 0.15  # the brightness that the photographs keep


def digits_near(folder: Path, split: Split) -> Pictures:
    """A digit in white on a dimmed piece of a photograph, in a frame of 12x12 pixels.

    The class is the digit, a scan of 8x8 pixels; a place says nothing about it. The digit leaves
    the frame by 1 pixel at most and comes back at the other side, so circular shifts show digits
    that are cut where few of the images cut them: plain models can learn, and are inconsistent.
    """
    return compose("digits-near/2", split, side=12, beyond=1)


def digits_far(folder: Path, split: Split) -> Pictures:
    """A digit in white on a dimmed piece of a photograph, in a frame of 13x13 pixels.

    As `digits-near` in a larger frame, which shows the whole digit in all images: only circular
    shifts cut it. The class is the digit.
    """
    return compose("digits-far/2", split, side=13, beyond=0)


def digits_cropped(folder: Path, split: Split) -> Pictures:
    """A digit in white on a dimmed piece of a photograph, in a frame of 14x14 pixels to crop.

    The class is the digit, a scan of 8x8 pixels that the frame shows whole. Models see the central
    7/8 of the frame, so crops cut off a pixel of it at most, and two crops of an image show other
    real content at their borders, as the shift paper's crops of ImageNet do.
    """
    return compose("digits-cropped/2", split, side=14, beyond=0)


@functools.cache
def compose(name: str, split: Split, side: int, beyond: int) -> Pictures:
    """Compose all images of a split: (N, side, side, 3) uint8, labelled by their digit.

    A digit's first row and column are uniform from -`beyond` to side - `SCAN` + `beyond`, modulo
    the side: it leaves the frame by so many pixels at most.
    """
    random, count = stream(name, split), IMAGES[split]
    digits, labels = scans(split)
    which = random.randint(len(digits), size=count)
    first = random.randint(-beyond, side - SCAN + beyond + 1, size=(count, 2))
    rows, columns = np.moveaxis((first[..., None] + np.arange(SCAN)) % side, 1, 0)
    digit = np.zeros((count, side, side, 1), dtype=np.float32)
    digit[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :], 0] = digits[which]
    picture = GROUND * _grounds(split, random, count, side)
    picture += digit * (255 - picture)
    return Pictures(np.round(picture).astype(np.uint8), labels[which])


def _grounds(split: Split, random: np.random.RandomState, count: int, side: int) -> np.ndarray:
    """Squares within tiles of both photographs, halved by means of 2x2 pixels: float32, 0..255."""
    grounds = np.empty((count, side, side, 3), dtype=np.float32)
    photo = random.randint(len(photos()), size=count)
    for number, (name, pixels) in enumerate(photos().items()):
        (chosen,) = np.nonzero(photo == number)
        whole = pixels.astype(np.float32)
        halved = (whole[:-1, :-1] + whole[1:, :-1] + whole[:-1, 1:] + whole[1:, 1:]) / 4
        boxes = tiles(name, split, least=2 * side)
        left, top, right, bottom = boxes[random.randint(len(boxes), size=len(chosen))].T
        x = random.randint(left, right - 2 * side + 1)[:, None] + 2 * np.arange(side)
        y = random.randint(top, bottom - 2 * side + 1)[:, None] + 2 * np.arange(side)
        grounds[chosen] = halved[y[:, :, None], x[:, None, :]]
    return grounds
