"""Scenes whose digits are named by where they stand: Table 4 of the variance paper."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from replication.datasets.arrays import scans
from replication.datasets.scenes import HEIGHT, SKY, TREES, ComposedScenes, Scene, cut, landscape
from replication.images.opening import Split, role, stream

World = Literal["halves", "thirds", "quarters"]
GRIDS: dict[World, tuple[int, int]] = {"halves": (1, 2), "thirds": (1, 3), "quarters": (2, 2)}
"""Rows and columns of the named places."""

TEST_WIDTHS: dict[World, int] = {"halves": 96, "thirds": 128, "quarters": HEIGHT}
COUNTS: dict[Split, int] = {"train": 200, "val": 60}
THRESHOLD = 0.375
"""Of a scan's ink, from which on a pixel is the digit's."""


def classes(world: World) -> tuple[str, ...]:
    """Name the classes: what is in a photograph, then the places of digits as one reads."""
    rows, columns = GRIDS[world]
    places = (f"row {r + 1} column {c + 1}" for r in range(rows) for c in range(columns))
    return ("sky", "trees", *(f"digit in {place}" for place in places))


def halves(folder: Path, split: Split, seed: int = 0) -> ComposedScenes:
    """Digits that are named by the half of the image that they stand in, left or right.

    A scene is sky above trees or below them, cut from photographs, with two to four digits pasted
    anywhere, of sky where trees are and of trees where the sky is: neither a pixel's colour nor its
    place tells what it shows. The class of a digit is its half of the image, not which digit it is,
    so that a segmenter must know positions. Test images have 64x96 pixels and training images
    64x64, so that the table of positions is upsampled along one axis. No scan is in both splits;
    the photographs are. Each seed draws other scenes.
    """
    return _composed("halves", split, seed)


def thirds(folder: Path, split: Split, seed: int = 0) -> ComposedScenes:
    """As `halves`, with digits named by thirds and test images of 64x128 pixels."""
    return _composed("thirds", split, seed)


def quarters(folder: Path, split: Split, seed: int = 0) -> ComposedScenes:
    """As `halves`, with digits named by quarters.

    Test images have as many pixels as training images; recipes enlarge them, so that the table of
    positions is upsampled along both axes.
    """
    return _composed("quarters", split, seed)


def _composed(world: World, split: Split, seed: int) -> ComposedScenes:
    images, random = scans(split)[0], stream(f"scenes-{world}/3", split, seed)
    return ComposedScenes(compose(world, split, images, random) for _ in range(COUNTS[role(split)]))


def compose(
    world: World, split: Split, images: np.ndarray, random: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Compose the next scene: (H, W, 3) uint8, and its mask (H, W) uint8, 1 + class.

    `images` are the scans that its digits are taken from: (N, 8, 8) in 0..1.
    """
    scene = Scene(HEIGHT if role(split) == "train" else TEST_WIDTHS[world])
    landscape(scene, random)
    if random.randint(2):
        scene.pixels, scene.mask = scene.pixels[::-1].copy(), scene.mask[::-1].copy()
    ground = scene.mask.copy()
    rows, columns = GRIDS[world]
    height, width = scene.mask.shape
    for _ in range(random.randint(2, 5)):
        side = random.randint(16, 27)
        scan = Image.fromarray(images[random.randint(len(images))])
        shape = np.asarray(scan.resize((side, side), Image.Resampling.BICUBIC)) > THRESHOLD
        top, left = random.randint(height - side + 1), random.randint(width - side + 1)
        row = (2 * top + side) * rows // (2 * height)  # of the digit's centre
        column = (2 * left + side) * columns // (2 * width)
        label = 3 + row * columns + column
        on_sky = ground[top + side // 2, left + side // 2] == 1 + classes(world).index("sky")
        piece = cut(TREES if on_sky else SKY, side, side, random)
        scene.paste(piece, shape, top, left, label)
    return scene.pixels, scene.mask
