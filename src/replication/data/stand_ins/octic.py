"""The octic paper's stand-ins: small upright images of things and of stuff.

Things are digit scans, stuff is one of eight materials, cut from two photographs. 2 and 5 are one
class, and so are 6 and 9: classes are closed under turns and mirrorings, which an invariant model
cannot tell apart. Materials hardly have an upright side, digits have.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.nn import functional
from torch.utils.data import Dataset

from replication.data.arrays import scans
from vitrail.images.loading import Pictures
from vitrail.images.opening import Split, stream
from vitrail.images.photos import Box, photo, photos, tiles

SIDE = 16
CROPS = (16, 24)
"""Sides of the squares that materials are cut from photographs by, from and to."""

IMAGES: dict[Split, int] = {"train": 6400, "val": 1600}
KINDS = np.array([0, 1, 2, 3, 4, 2, 5, 6, 7, 5])
"""The class of each digit: one turned by half is another, and so is one mirrored."""

TILT = 10.0  # degrees, a standard deviation
Range = tuple[float, float]
SCALE: Range = (0.9, 1.0)
SHAPES_SCALE: Range = (0.75, 1.0)
GROUND = 0.3  # brightness of what a thing lies on
TINT = 0.3  # share of a thing's brightness that is its material's

CELLS: dict[Split, int] = {"train": 1200, "val": 400}
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


@functools.cache  # the seeds of a run share it
def things_and_stuff(folder: Path, split: Split) -> Pictures:
    """Compose images of 16 pixels, half of things and half of stuff; `folder` is not read.

    Stuff is a square of one of eight materials, cut from a photograph. A thing is a digit scan, a
    little turned and half of them mirrored, bright and tinted by a material, on a dark one. Asked
    for is the material, or the digit, where 2 and 5 are one class, and 6 and 9: so turns change no
    class, which Tables 2 and 5, Figure 4b and Sec. 4.3 need, but what images look like, which makes
    a model without invariance lose accuracy on turned ones.
    """
    half, random = IMAGES[split] // 2, stream("things-and-stuff", split)
    kinds = np.arange(half) % 8
    pixels, _ = things(kinds, random.randint(8, size=half), split, random)
    return _pictures([pixels, stuff(kinds, split, random)], [2 * kinds, 2 * kinds + 1])


@functools.cache
def shapes(folder: Path, split: Split) -> Pictures:
    """Compose digit scans of 16 pixels, white on black; `folder` is not read.

    They are of any size from 12 to 16 pixels, at any place, a little turned, and half of them are
    mirrored; asked for is the digit, where 2 and 5 are one class, and 6 and 9. DINOv2 trains on
    them without labels, for Table 3 and Figure 7. Its crops teach a model that size and place do
    not matter, which untrained features do not know. By their shapes alone can they be told apart,
    while of coloured images a small model learns the colours, and untrained features know them.
    """
    random, labels = stream("shapes", split), np.arange(3 * IMAGES[split] // 8) % 8
    covers = cover(labels, split, random, SHAPES_SCALE)
    return _pictures([np.repeat(covers[..., None], 3, axis=-1)], [labels])


def species(folder: Path, split: Split) -> Pictures:
    """Compose digits of materials on materials; asked for is both at once. `folder` is not read.

    Features of `shapes` are judged on them in Table 7, as iNaturalist's classes are fine ones.
    """
    random, labels = stream("species", split), np.arange(IMAGES[split] // 4) % 64
    pixels, _ = things(labels // 8, labels % 8, split, random)
    return _pictures([pixels], [labels])


def places(folder: Path, split: Split) -> Pictures:
    """Cut squares from eleven regions of two photographs; asked for is which. `folder` is not read.

    Features of `shapes` are judged on them in Table 7, as Places365 shows scenes and no things.
    """
    random, regions = (
        stream("places", split),
        [region for found in REGIONS.values() for region in found],
    )
    labels = np.arange(IMAGES[split] // 4) % len(regions)
    pixels = [_crop([regions[label]], split, random) for label in labels]
    return _pictures([np.stack(pixels)], [labels])


class Objects(Dataset[tuple[Image.Image, np.ndarray]]):
    """Digits of materials on materials, each with a mask (16, 16) uint8, 0 or 1 + its class.

    Features of `shapes` are judged on them in Table 3, as VOC 2012 labels objects and no ground.
    `folder` is not read.
    """

    def __init__(self, folder: Path, split: Split) -> None:
        random, kinds = stream("objects", split), np.arange(IMAGES[split] // 16) % 8
        pixels, covers = things(kinds, random.randint(8, size=len(kinds)), split, random)
        self.images = _pictures([pixels], [kinds])
        self.masks = np.where(covers > 0.5, 1 + kinds[:, None, None], 0).astype(np.uint8)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Image.Image, np.ndarray]:
        return self.images[index][0], self.masks[index]


@functools.cache  # the seeds of a run share it
def cells(folder: Path, split: Split) -> Pictures:
    """A digit scan in one of eight orientations, stained, on a pale piece of a photograph.

    Asked for is the digit, where 2 and 5 are one class, and 6 and 9. As with cells on a slide, no
    side is up: what a model knows of orientation is of no use, so an invariant one loses nothing by
    its constraint. Classes are as unequal as 1 and 8, so that accuracy and balanced accuracy
    differ. 1,200 images of 16 pixels train and 400 test.
    """
    random = stream("cells", split)
    drawn, digits = scans(split)
    flower, cut = photos()["flower"] / 255, tiles("flower", split, least=SIDE)
    labels = random.choice(8, size=CELLS[split], p=CELL_SHARES)
    images = np.empty((len(labels), SIDE, SIDE, 3))
    for image, label in zip(images, labels, strict=True):
        left, top, right, bottom = cut[random.randint(len(cut))]
        x, y = random.randint(left, right - SIDE + 1), random.randint(top, bottom - SIDE + 1)
        image[:] = PALE + (1 - PALE) * flower[y : y + SIDE, x : x + SIDE]
        scan = drawn[random.choice(np.flatnonzero(KINDS[digits] == label))]
        scan = np.rot90(scan.T if random.randint(2) else scan, random.randint(4))
        image += scan.repeat(2, 0).repeat(2, 1)[..., None] * (STAIN - image)
    return Pictures(np.round(255 * images.clip(0, 1)).astype(np.uint8), labels)


def things(
    kinds: np.ndarray, materials: np.ndarray, split: Split, random: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Compose things of these kinds and materials, each on a darker material.

    Images are ``(N, 16, 16, 3)`` in 0..1, the shares of pixels that things cover ``(N, 16, 16)``.
    """
    covers = cover(kinds, split, random)
    filling = 1 - TINT + TINT * stuff(materials, split, random)
    ground = GROUND * stuff(random.randint(8, size=len(kinds)), split, random)
    return ground + covers[..., None] * (filling - ground), covers


def cover(
    kinds: np.ndarray, split: Split, random: np.random.RandomState, scale: Range = SCALE
) -> np.ndarray:
    """Place a scan of each of these kinds, ``(N, 16, 16)`` in 0..1."""
    drawn, digits = scans(split)
    pools = [np.flatnonzero(KINDS[digits] == kind) for kind in range(8)]
    return placed(drawn[[random.choice(pools[kind]) for kind in kinds]], random, scale)


def placed(strokes: np.ndarray, random: np.random.RandomState, scale: Range = SCALE) -> np.ndarray:
    """Enlarge scans ``(N, 8, 8)`` to ``(N, 16, 16)``, a little turned, half of them mirrored.

    A scan fills a share of the side that is drawn from `scale`, and lies anywhere.
    """
    n = len(strokes)
    angle, size = np.radians(TILT) * random.randn(n), random.uniform(*scale, n)
    mirror, shift = random.choice([-1, 1], n), random.uniform(-1, 1, (2, n)) * (1 - size)
    cos, sin = np.cos(angle) / size, np.sin(angle) / size
    inverse = np.array([[mirror * cos, mirror * sin], [-sin, cos]])  # from the image to the scan
    offset = -(inverse * shift).sum(1, keepdims=True)
    to_scan = torch.from_numpy(np.concatenate([inverse, offset], 1).transpose(2, 0, 1)).float()
    fine = functional.interpolate(
        torch.from_numpy(strokes)[:, None], scale_factor=4, mode="bicubic"
    )
    grid = functional.affine_grid(to_scan, [n, 1, 2 * SIDE, 2 * SIDE], align_corners=False)
    sampled = functional.grid_sample(fine.clamp(0, 1), grid, align_corners=False)
    return functional.avg_pool2d(sampled, 2)[:, 0].numpy()


def stuff(materials: np.ndarray, split: Split, random: np.random.RandomState) -> np.ndarray:
    """Cut a square of each of these materials, ``(N, 16, 16, 3)`` in 0..1."""
    regions = list(REGIONS.values())
    return np.stack([_crop(regions[material], split, random) for material in materials])


def _crop(
    regions: list[tuple[str, Box]], split: Split, random: np.random.RandomState
) -> np.ndarray:
    """A square of any size and place in a tile of these regions, half of them mirrored."""
    found = [(name, tile) for name, box in regions for tile in _large_tiles(name, box, split)]
    name, (left, top, right, bottom) = found[random.randint(len(found))]
    side = random.randint(CROPS[0], min(CROPS[1], right - left, bottom - top) + 1)
    x, y = random.randint(left, right - side + 1), random.randint(top, bottom - side + 1)
    box = (x, y, x + side, y + side)
    picture = photo(name).resize((SIDE, SIDE), Image.Resampling.BILINEAR, box)
    pixels = np.asarray(picture, np.float32) / 255
    return pixels[:, ::-1] if random.randint(2) else pixels


@functools.cache
def _large_tiles(name: str, box: Box, split: Split) -> list[Box]:
    """The tiles of a split in a region that hold the smallest square."""
    return tiles(name, split, box, least=CROPS[0]).tolist()


def _pictures(pixels: list[np.ndarray], labels: list[np.ndarray]) -> Pictures:
    rounded = np.round(255 * np.concatenate(pixels)).astype(np.uint8)
    return Pictures(rounded, np.concatenate(labels))
