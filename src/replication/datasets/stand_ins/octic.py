"""The octic paper's stand-ins: things on stuff to be classified, and materials for DINOv2.

Things are digits, materials squares cut from two photographs. 2 and 5 are one class, and so
are 6 and 9: classes are closed under turns and mirrorings, which an invariant model cannot tell
apart. Images are upright all the same, so that turning them is a change. Each seed composes its
own images, and classes come in a random order. scikit-learn bundles what they are cut from, so
nothing is read from `folder`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image
from torch.utils.data import Dataset

from replication.datasets.arrays import scans
from replication.images.loading import Pictures
from replication.images.opening import Split, role, stream
from replication.images.photos import Box, photo, tiles

SIDE = 16
CROPS = (12, 24)
"""Sides of the squares that materials are cut from photographs by, from and to."""

KINDS = np.array([0, 1, 2, -1, 3, 2, 4, 5, -1, 4])
"""The class of each digit: one turned by half is another, and so is one mirrored; 3 and 8 are not
shown, which a small model confuses until it has trained for twice as long."""

THINGS = 6  # classes of digits

IMAGES: dict[Split, int] = {"train": 3200, "val": 1600}
SHADE = 0.4  # brightness of the stuff behind things
INK = (0.7, 1.0)  # brightness of a channel of the thing that is asked for
SCAN = 8  # side of a scan and of a quarter of an image

FEATURES: dict[Split, int] = {"train": 1600, "val": 400}
"""Images of those that DINOv2 trains on and is judged on."""
CONTRAST = 0.22  # standard deviation of the pixels of a grey square around 0.5
RADII = (4.0, 7.0)  # of a disc, in pixels
GROUND = 0.4  # brightness of what a disc lies on

CELL_SHARES = np.arange(1, 9) / 36
STAIN = np.array([0.35, 0.15, 0.45])  # purple
PALE = 0.85  # share of white in the ground: colours would tell images apart, not their cells

REGIONS: dict[str, list[tuple[str, Box]]] = {
    "sky": [("china", (330, 0, 640, 190))],
    "water": [("china", (350, 225, 545, 290))],
    "leaves": [("china", (0, 150, 70, 427))],
    "bush": [("china", (345, 290, 555, 427))],
    "roof": [("china", (110, 240, 340, 285)), ("china", (100, 75, 320, 130))],
    "facade": [("china", (95, 185, 320, 240)), ("china", (80, 285, 340, 350))],
    "petals": [("flower", (180, 95, 430, 345))],
    "blur": [("flower", (445, 0, 640, 427)), ("flower", (0, 60, 150, 330))],
}
"""Where the photographs show each material."""


def things_and_stuff(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """A bright digit in one quarter of a photographed square and a black one in another quarter.

    The class is the bright digit, where 2 and 5 are one class, and 6 and 9; no digit is 3 or 8. Its
    quarter, its colour and the black digit say nothing, and mislead neighbours in pixels. Digits
    are upright and half of them mirrored: so turns change no class, which Tables 2 and 5, Figure 4b
    and Sec. 4.3 need, but what images look like, which makes a model without invariance lose
    accuracy on turned ones.
    """
    random = stream("things-and-stuff", split, seed)
    labels = _labels(IMAGES[role(split)], THINGS, random)
    pixels = SHADE * stuff(random.randint(8, size=len(labels)), split, random)
    asked, other = random.rand(len(labels), 4).argsort(1)[:, :2].T
    ink = random.uniform(*INK, (len(labels), 3))
    _draw(
        pixels, random.randint(THINGS, size=len(labels)), other, np.zeros_like(ink), split, random
    )
    _draw(pixels, labels, asked, ink, split, random)
    return _pictures(pixels, labels)


def materials(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """A grey square of one of eight materials, cut from photographs at any size: the class.

    All have one mean and one contrast, so a material can be known by its texture alone, which lies
    at another place in every image: pixels of two images are hardly alike. DINOv2 trains on them
    without labels, for Table 3 and Figure 7; its crops teach that place and size do not matter.
    """
    random = stream("materials", split, seed)
    labels = _labels(FEATURES[role(split)], 8, random)
    return _pictures(squares(labels, split, random), labels)


def species(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """A disc of one material on another; the class is the pair of materials.

    Features of `materials` are judged on them in Table 7, as iNaturalist's classes are fine ones.
    """
    random = stream("species", split, seed)
    labels = _labels(FEATURES[role(split)], 64, random)
    pixels, _ = discs(labels // 8, labels % 8, split, random)
    return _pictures(pixels, labels)


def places(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """A grey square from one of eleven regions of two photographs: the class.

    Features of `materials` are judged on them in Table 7, as Places365 shows scenes and no things.
    """
    random, regions = (
        stream("places", split, seed),
        [[region] for found in REGIONS.values() for region in found],
    )
    labels = _labels(FEATURES[role(split)], len(regions), random)
    return _pictures(grey(_cut(regions, labels, split, random)), labels)


class Objects(Dataset[tuple[Image.Image, np.ndarray]]):
    """Discs of materials on materials, each with a mask (16, 16) uint8, 0 or 1 + its class.

    Features of `materials` are judged on them in Table 3, as VOC 2012 labels objects and no ground.
    """

    def __init__(self, folder: Path, split: Split, seed: int = 0) -> None:
        random = stream("objects", split, seed)
        kinds = _labels(FEATURES[role(split)] // 4, 8, random)
        pixels, covers = discs(kinds, random.randint(8, size=len(kinds)), split, random)
        self.images = _pictures(pixels, kinds)
        self.masks = np.where(covers > 0.5, 1 + kinds[:, None, None], 0).astype(np.uint8)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Image.Image, np.ndarray]:
        return self.images[index][0], self.masks[index]


def cells(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """A stained disc of one of eight materials, in one of eight orientations, on a pale ground.

    The class is the material, as white blood cells are told by the texture of their nuclei. As with
    cells on a slide, no side is up: what a model knows of orientation is of no use, so an invariant
    one loses nothing by its constraint. Classes are as unequal as 1 and 8, so that accuracy and
    balanced accuracy differ.
    """
    random = stream("cells", split, seed)
    labels = random.choice(8, size=FEATURES[role(split)], p=CELL_SHARES)
    density = squares(labels, split, random)
    for index, square in enumerate(density):
        mirrored = square.T if random.randint(2) else square
        density[index] = np.rot90(mirrored, random.randint(4))
    ground = PALE + (1 - PALE) * stuff(np.full(len(labels), 6), split, random)  # petals
    stained = (cover(len(labels), random) * density)[..., None]
    return _pictures(ground + stained * (STAIN - ground), labels)


def discs(
    kinds: np.ndarray, grounds: np.ndarray, split: Split, random: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Compose grey discs of these materials, each on a darker material.

    Images are ``(N, 16, 16)`` in 0..1, and so are the shares of pixels that discs cover.
    """
    covers = cover(len(kinds), random)
    ground = GROUND * squares(grounds, split, random)
    return ground + covers * (squares(kinds, split, random) - ground), covers


def cover(count: int, random: np.random.RandomState) -> np.ndarray:
    """Place discs of any size wholly in the frame: the share of each pixel, (N, 16, 16) in 0..1."""
    radius = random.uniform(*RADII, count)
    centre = random.uniform(radius, SIDE - radius, (2, count))
    rows, columns = (np.square(np.arange(SIDE) + 0.5 - middle[:, None]) for middle in centre)
    distance = np.sqrt(rows[:, :, None] + columns[:, None, :])
    shares: np.ndarray = (radius[:, None, None] + 0.5 - distance).clip(0, 1)
    return shares


def squares(kinds: np.ndarray, split: Split, random: np.random.RandomState) -> np.ndarray:
    """Cut a grey square of each of these materials, ``(N, 16, 16)`` in 0..1."""
    return grey(stuff(kinds, split, random))


def grey(pixels: np.ndarray) -> np.ndarray:
    """The mean of the colours of ``(N, 16, 16, 3)``, of each image with one mean and contrast."""
    light = pixels.mean(-1)
    light -= light.mean((1, 2), keepdims=True)
    spread = light.std((1, 2), keepdims=True) + 1 / 255  # of an even sky not noise alone
    found: np.ndarray = (0.5 + CONTRAST * light / spread).clip(0, 1)
    return found


def stuff(kinds: np.ndarray, split: Split, random: np.random.RandomState) -> np.ndarray:
    """Cut a square of each of these materials, ``(N, 16, 16, 3)`` in 0..1."""
    return _cut(list(REGIONS.values()), kinds, split, random)


def _cut(
    regions: list[list[tuple[str, Box]]],
    kinds: np.ndarray,
    split: Split,
    random: np.random.RandomState,
) -> np.ndarray:
    """Squares of any size and place in a tile of each kind's regions, half of them mirrored."""
    found = [
        [(name, box) for name, region in parts for box in tiles(name, split, region, CROPS[0])]
        for parts in regions
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
    """Draw a scan of each of these kinds into a quarter of each image, half of them mirrored."""
    drawn, digits = scans(split)
    pools = [np.flatnonzero(KINDS[digits] == kind) for kind in range(THINGS)]
    for image, kind, quarter, ink in zip(pixels, kinds, quarters, inks, strict=True):
        scan = drawn[random.choice(pools[kind])]
        strokes = (scan[:, ::-1] if random.randint(2) else scan)[..., None]
        top, left = SCAN * (quarter // 2), SCAN * (quarter % 2)
        under = image[top : top + SCAN, left : left + SCAN]
        under += strokes * (ink - under)


def _labels(count: int, classes: int, random: np.random.RandomState) -> np.ndarray:
    """Classes of equal shares in a random order."""
    return random.permutation(np.arange(count) % classes)


def _pictures(pixels: np.ndarray, labels: np.ndarray) -> Pictures:
    """Of images ``(N, 16, 16, 3)``, or grey ones ``(N, 16, 16)``, in 0..1."""
    coloured = pixels if pixels.ndim == 4 else np.repeat(pixels[..., None], 3, axis=-1)
    return Pictures(np.round(255 * coloured.clip(0, 1)).astype(np.uint8), labels)
