"""The octic paper's stand-ins: small upright images of things and of stuff.

Half of the images of `things-and-stuff` (ImageNet) show one of eight materials, cut from two
photographs, half a bright digit scan that is tinted by one material and lies on another. Asked for is
the material, or the digit, where 2 and 5 are one class, and 6 and 9: so classes are closed under
turns and mirrorings, which an invariant model cannot tell apart, while most images have an upright
side, so that a model without invariance loses accuracy when they are turned (Tables 2 and 5, Fig.
4b, Sec. 4.3, and DINOv2's Table 3). It has 6,400 training and 1,600 test images.

DINOv2 trains on `shapes`, the same digits white on black: without labels a small model would tell
images apart by their colours alone. It has 2,400 training and 600 test images. Its features are
judged on three more, each of 1,600 and 400 images composed anew: `species` (iNaturalist) asks for a
thing and its material at once, `places` (Places365) from which of eleven regions of the photographs
a material is, `objects` (VOC2012) for the digit at each pixel, 0 where there is none.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.nn import functional
from torch.utils.data import Dataset

from vitrine.data.arrays import Pictures
from vitrine.data.opening import Split
from vitrine.data.photos import photos
from vitrine.data.stand_ins.pieces import scans, stream, tiles

SIDE = 16
CROPS = (16, 24)
"""Sides of the squares that materials are cut from photographs by, from and to."""

IMAGES: dict[Split, int] = {"train": 6400, "val": 1600}
SHAPES = np.array([0, 1, 2, 3, 4, 2, 5, 6, 7, 5])
"""The class of each digit: one turned by half is another, and so is one mirrored."""

TILT = 10.0  # degrees, a standard deviation
SCALE = (0.9, 1.0)
GROUND = 0.3  # brightness of what a thing lies on
TINT = 0.3  # share of a thing's brightness that is its material's

Box = tuple[int, int, int, int]
"""Left, top, right and bottom in a photograph, in pixels."""

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
    """Open the stand-in of ImageNet; it is composed, so `folder` is not read."""
    half, random = IMAGES[split] // 2, stream("things-and-stuff", split)
    shapes, materials = np.arange(half) % 8, np.arange(half) % 8
    pixels, _ = things(shapes, random.randint(8, size=half), split, random)
    return _pictures([pixels, stuff(materials, split, random)], [shapes, 8 + materials])


@functools.cache
def shapes(folder: Path, split: Split) -> Pictures:
    """Open what DINOv2 trains on in the place of ImageNet; `folder` is not read."""
    random, labels = stream("shapes", split), np.arange(3 * IMAGES[split] // 8) % 8
    covers = cover(labels, split, random)
    return _pictures([np.repeat(covers[..., None], 3, axis=-1)], [labels])


def species(folder: Path, split: Split) -> Pictures:
    """Open the stand-in of iNaturalist; `folder` is not read."""
    random, labels = stream("species", split), np.arange(IMAGES[split] // 4) % 64
    pixels, _ = things(labels // 8, labels % 8, split, random)
    return _pictures([pixels], [labels])


def places(folder: Path, split: Split) -> Pictures:
    """Open the stand-in of Places365; `folder` is not read."""
    random, regions = stream("places", split), sum(REGIONS.values(), [])
    labels = np.arange(IMAGES[split] // 4) % len(regions)
    pixels = [_crop([regions[label]], split, random) for label in labels]
    return _pictures([np.stack(pixels)], [labels])


class Objects(Dataset[tuple[Image.Image, np.ndarray]]):
    """The stand-in of VOC 2012: things and the mask of each, (16, 16) uint8, 0 or 1 + shape."""

    def __init__(self, folder: Path, split: Split) -> None:
        random, shapes = stream("objects", split), np.arange(IMAGES[split] // 4) % 8
        pixels, covers = things(shapes, random.randint(8, size=len(shapes)), split, random)
        self.images = _pictures([pixels], [shapes])
        self.masks = np.where(covers > 0.5, 1 + shapes[:, None, None], 0).astype(np.uint8)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Image.Image, np.ndarray]:
        return self.images[index][0], self.masks[index]


def things(
    shapes: np.ndarray, materials: np.ndarray, split: Split, random: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Compose things of these shapes and materials, each on a darker material.

    Returns:
        images ``(N, 16, 16, 3)`` in 0..1, and the share of each pixel that the thing covers,
        ``(N, 16, 16)``.
    """
    covers = cover(shapes, split, random)
    filling = 1 - TINT + TINT * stuff(materials, split, random)
    ground = GROUND * stuff(random.randint(8, size=len(shapes)), split, random)
    return ground + covers[..., None] * (filling - ground), covers


def cover(shapes: np.ndarray, split: Split, random: np.random.RandomState) -> np.ndarray:
    """Place a scan of each of these shapes, ``(N, 16, 16)`` in 0..1."""
    drawn, digits = scans(split)
    pools = [np.flatnonzero(SHAPES[digits] == shape) for shape in range(8)]
    return placed(drawn[[random.choice(pools[shape]) for shape in shapes]], random)


def placed(strokes: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    """Enlarge scans ``(N, 8, 8)`` to ``(N, 16, 16)``, a little turned, half of them mirrored."""
    n = len(strokes)
    angle, scale = np.radians(TILT) * random.randn(n), random.uniform(*SCALE, n)
    mirror, shift = random.choice([-1, 1], n), random.uniform(-1, 1, (2, n)) * (1 - scale)
    cos, sin = np.cos(angle) / scale, np.sin(angle) / scale
    inverse = np.array([[mirror * cos, mirror * sin], [-sin, cos]])  # from the image to the scan
    offset = -(inverse * shift).sum(1, keepdims=True)
    to_scan = torch.from_numpy(np.concatenate([inverse, offset], 1).transpose(2, 0, 1)).float()
    fine = functional.interpolate(torch.from_numpy(strokes)[:, None], scale_factor=4, mode="bicubic")
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
    found = [(photo, tile) for photo, box in regions for tile in _large_tiles(photo, box, split)]
    photo, (left, top, right, bottom) = found[random.randint(len(found))]
    side = random.randint(CROPS[0], min(CROPS[1], right - left, bottom - top) + 1)
    x, y = random.randint(left, right - side + 1), random.randint(top, bottom - side + 1)
    picture = _photos()[photo].resize((SIDE, SIDE), Image.Resampling.BILINEAR, (x, y, x + side, y + side))
    pixels = np.asarray(picture, np.float32) / 255
    return pixels[:, ::-1] if random.randint(2) else pixels


@functools.cache
def _large_tiles(photo: str, box: Box, split: Split) -> list[Box]:
    """The tiles of a split in a region that hold the smallest square."""
    found = tiles(photo, split, box)
    return found[(found[:, 2:] - found[:, :2]).min(1) >= CROPS[0]].tolist()


@functools.cache
def _photos() -> dict[str, Image.Image]:
    return {name: Image.fromarray(pixels) for name, pixels in photos().items()}


def _pictures(pixels: list[np.ndarray], labels: list[np.ndarray]) -> Pictures:
    rounded = np.round(255 * np.concatenate(pixels)).astype(np.uint8)
    return Pictures(rounded, np.concatenate(labels))
