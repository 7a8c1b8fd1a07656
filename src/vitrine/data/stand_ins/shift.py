"""Stand-ins of the shift paper's datasets: one digit anywhere on a piece of a photograph.

A small frame shows a dimmed piece of one of two photographs, of which every second pixel is kept by
averaging, and one scan of 8x8 pixels blended into it in white. What leaves the frame at one side
comes back at the other. The class is the digit, wherever it stands: as in natural images a place
says nothing about it, so a model that gives up absolute positions loses no information. The frame
is enlarged to a model's input, as CIFAR's images are in the paper. No scan and no pixel of a
photograph is in both splits.

Of each 12,000 images train, so that few epochs suffice, and 1,000 test:

- `digits_near` (CIFAR-10): a frame of 12 pixels, which a digit leaves by 2 at most. Most circular
  shifts cut the digit in two, as few of the images do: what plain models are inconsistent about.
- `digits_torus` (CIFAR-100): a frame of 14 pixels, all places alike: the hardest of the three.
- `digits_cropped` (ImageNet): as the first in a frame of 14 pixels, on a brighter ground. Models
  see its central 7/8, so two crops of an image show different real content at their borders.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from vitrine.data.arrays import Pictures
from vitrine.data.opening import Split
from vitrine.data.photos import photos
from vitrine.data.stand_ins.pieces import scans, stream, tiles

IMAGES: dict[Split, int] = {"train": 10000, "val": 1000}
SCAN = 8


def digits_near(folder: Path, split: Split) -> Pictures:
    """Open CIFAR-10's stand-in; its pieces come with scikit-learn, so `folder` is not read."""
    return compose("digits-near", split, side=12, beyond=2, ground=0.15)


def digits_torus(folder: Path, split: Split) -> Pictures:
    """Open CIFAR-100's stand-in, likewise."""
    return compose("digits-torus", split, side=14, beyond=SCAN - 1, ground=0.15)


def digits_cropped(folder: Path, split: Split) -> Pictures:
    """Open ImageNet's stand-in, likewise."""
    return compose("digits-cropped", split, side=14, beyond=2, ground=0.3)


@functools.cache
def compose(name: str, split: Split, side: int, beyond: int, ground: float) -> Pictures:
    """Compose all images of a split: (N, side, side, 3) uint8, labelled by their digit.

    A digit's first row and column are uniform from -`beyond` to side - 8 + `beyond`, modulo the
    side; `ground` is the brightness that the photographs keep.
    """
    random, count = stream(name, split), IMAGES[split]
    digits, labels = scans(split)
    which = random.randint(len(digits), size=count)
    first = random.randint(-beyond, side - SCAN + beyond + 1, size=(count, 2))
    rows, columns = np.moveaxis((first[..., None] + np.arange(SCAN)) % side, 1, 0)
    digit = np.zeros((count, side, side, 1), dtype=np.float32)
    digit[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :], 0] = digits[which]
    picture = ground * _grounds(split, random, count, side)
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
        boxes = tiles(name, split)
        boxes = boxes[(boxes[:, 2:] - boxes[:, :2] >= 2 * side).all(1)]
        left, top, right, bottom = boxes[random.randint(len(boxes), size=len(chosen))].T
        x = random.randint(left, right - 2 * side + 1)[:, None] + 2 * np.arange(side)
        y = random.randint(top, bottom - 2 * side + 1)[:, None] + 2 * np.arange(side)
        grounds[chosen] = halved[y[:, :, None], x[:, None, :]]
    return grounds
