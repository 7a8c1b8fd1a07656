"""Scenes whose digits are named by where they stand: Table 4 of the variance paper.

A scene is sky above trees or below them, cut from photographs, with two to four digits pasted
anywhere, of sky where trees are and of trees where the sky is: neither a pixel's colour nor its
place tells what it shows. The class of a digit is its half, third or quarter of the image, not
which digit it is, so that a segmenter must know positions. Test images are wider than the 64x64
pixels of the training images (halves 96, thirds 128) or are enlarged by the recipe (quarters), so
that the table of positions is upsampled along one axis or both. No scan is in both splits; the
photographs are. Scenes are files, the same for all seeds.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from PIL import Image

from replication.data.arrays import scans
from replication.data.scenes import HEIGHT, SKY, TREES, Scene, cut, landscape, save
from vitrail.images.opening import Split, stream

if TYPE_CHECKING:
    from replication.plan.datasets import DatasetInfo

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


def write(world: World, info: DatasetInfo, folder: Path, output: Path) -> None:
    """Write a world's scenes to `output` as ADE20K has them; nothing else is read."""
    randoms = {split: stream(f"scenes-{world}/2", split) for split in COUNTS}
    save(output, COUNTS, lambda split, index: compose(world, split, randoms[split]))


halves, thirds, quarters = (partial(write, world) for world in GRIDS)


def compose(
    world: World, split: Split, random: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Compose the next scene: (H, W, 3) uint8, and its mask (H, W) uint8, 1 + class."""
    scene = Scene(HEIGHT if split == "train" else TEST_WIDTHS[world])
    landscape(scene, random)
    if random.randint(2):
        scene.pixels, scene.mask = scene.pixels[::-1].copy(), scene.mask[::-1].copy()
    ground = scene.mask.copy()
    rows, columns = GRIDS[world]
    height, width = scene.mask.shape
    images = _scans(split)
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


@cache
def _scans(split: Split) -> np.ndarray:
    return scans(split)[0]
