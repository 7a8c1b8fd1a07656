"""The stand-in for the octic paper's image datasets: things on stuff.

Things are digits, stuff is squares cut from two photographs. 2 and 5 are one class, and so are 6
and 9: the classes do not change under turns and mirrorings, which an invariant model cannot
distinguish. The images are upright nevertheless, so that turned images differ from those of
training. Each seed composes its own images, and classes come in a random order. The scans and
photographs are part of scikit-learn, so nothing is read from `folder`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from replication.datasets.arrays import scans
from replication.images.loading import Pictures
from replication.images.opening import Split, role, stream
from replication.images.photos import Box, photo, tiles

SIDE = 16
CROPS = (12, 24)
"""Least and greatest side of the squares that are cut from photographs."""

KINDS = np.array([0, 1, 2, -1, 3, 2, 4, 5, -1, 4])
"""The class of each digit; digits that look alike when turned or mirrored share one. 3 and 8 (-1)
are not used, as a small model confuses them until it has trained for twice as long."""

THINGS = 6  # classes of digits

IMAGES: dict[Split, int] = {"train": 3200, "val": 1600}
SHADE = 0.4  # brightness of the stuff behind things
INK = (0.7, 1.0)  # range of a colour channel of the bright digit
SCAN = 8  # side of a scan and of a quarter of an image

REGIONS: tuple[tuple[tuple[str, Box], ...], ...] = (
    (("china", (330, 0, 640, 190)),),  # sky
    (("china", (350, 225, 545, 290)),),  # water
    (("china", (0, 150, 70, 427)),),  # leaves
    (("china", (345, 290, 555, 427)),),  # bush
    (("china", (110, 240, 340, 285)), ("china", (100, 75, 320, 130))),  # roof
    (("china", (95, 185, 320, 240)), ("china", (80, 285, 340, 350))),  # facade
    (("flower", (180, 95, 430, 345)),),  # petals
    (("flower", (445, 0, 640, 427)), ("flower", (0, 60, 150, 330))),  # blur
)
"""For each kind of stuff the photographs and boxes that show it."""


def things_and_stuff(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """A bright digit in one quarter of a photographed square and a black one in another quarter.

    The class is that of the bright digit; 2 and 5 are one class, 6 and 9 another; 3 and 8 are not
    used. The digit's quarter, its colour and the black digit are independent of the class, and
    mislead nearest neighbours of pixels. Digits are upright and half of them are mirrored.
    So turns do not change the class, which Tables 2 and 5, Figure 4b and Sec. 4.3 need. But they
    change the appearance, so that a model without invariance loses accuracy on turned images.
    """
    random = stream("things-and-stuff", split, seed)
    labels = random.permutation(np.arange(IMAGES[role(split)]) % THINGS)  # of equal shares
    pixels = SHADE * _stuff(random.randint(len(REGIONS), size=len(labels)), split, random)
    asked, other = random.rand(len(labels), 4).argsort(1)[:, :2].T
    ink = random.uniform(*INK, (len(labels), 3))
    _draw(
        pixels, random.randint(THINGS, size=len(labels)), other, np.zeros_like(ink), split, random
    )
    _draw(pixels, labels, asked, ink, split, random)
    return Pictures(np.round(255 * pixels.clip(0, 1)).astype(np.uint8), labels)


def _stuff(kinds: np.ndarray, split: Split, random: np.random.RandomState) -> np.ndarray:
    """Cut a square of stuff for each of `kinds`: ``(N, 16, 16, 3)`` float32 in 0..1.

    Its size and its position in a tile of the kind's regions are random; half of the squares are
    mirrored.
    """
    found = [
        [(name, box) for name, region in parts for box in tiles(name, split, region, CROPS[0])]
        for parts in REGIONS
    ]
    pixels = np.empty((len(kinds), SIDE, SIDE, 3), np.float32)
    for index, kind in enumerate(kinds):
        name, (left, top, right, bottom) = found[kind][random.randint(len(found[kind]))]
        side = random.randint(CROPS[0], min(CROPS[1], right - left, bottom - top) + 1)
        x, y = random.randint(left, right - side + 1), random.randint(top, bottom - side + 1)
        box = (x, y, x + side, y + side)
        square = np.asarray(photo(name).resize((SIDE, SIDE), Image.Resampling.BILINEAR, box))
        pixels[index] = (square[:, ::-1] if random.randint(2) else square) / 255
    return pixels


def _draw(
    pixels: np.ndarray,
    kinds: np.ndarray,
    quarters: np.ndarray,
    inks: np.ndarray,
    split: Split,
    random: np.random.RandomState,
) -> None:
    """Draw a scan of the class `kinds[n]` into a quarter of image n, half of them mirrored."""
    drawn, digits = scans(split)
    pools = [np.flatnonzero(KINDS[digits] == kind) for kind in range(THINGS)]
    for image, kind, quarter, ink in zip(pixels, kinds, quarters, inks, strict=True):
        scan = drawn[random.choice(pools[kind])]
        strokes = (scan[:, ::-1] if random.randint(2) else scan)[..., None]
        top, left = SCAN * (quarter // 2), SCAN * (quarter % 2)
        under = image[top : top + SCAN, left : left + SCAN]
        under += strokes * (ink - under)
