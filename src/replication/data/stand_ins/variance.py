"""Stand-ins of the variance paper: of ImageNet for Tables 3, 5 and 6, and scenes for Table 4.

`digits_covered` and `digits_few` are composed of digit scans, by each seed anew; no scan is in both
splits.

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
from vitrail.images.loading import Pictures
from vitrail.images.opening import Split, stream
from vitrail.images.photos import photos, tiles

if TYPE_CHECKING:
    from replication.plan.datasets import DatasetInfo

COVERED_IMAGES, COVERED_SIDE = 6000, 28
COVERS = 2
FEW, FEW_IMAGES, FEW_SIDE = 20, 1600, 20
SCAN = 8
GROUND = 0.3
"""The brightness that photographs keep behind the digits of `digits_few`."""

World = Literal["halves", "thirds", "quarters"]
GRIDS: dict[World, tuple[int, int]] = {"halves": (1, 2), "thirds": (1, 3), "quarters": (2, 2)}
"""Rows and columns of the named places."""

TEST_WIDTHS: dict[World, int] = {"halves": 96, "thirds": 128, "quarters": HEIGHT}
COUNTS: dict[Split, int] = {"train": 200, "val": 60}
THRESHOLD = 0.375
"""Of a scan's ink, from which on a pixel is the digit's."""


def digits_covered(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """A digit as large as the image, brighter than its coloured ground, partly covered; which?

    Two rectangles of any colour and of 4 to 10 pixels a side cover parts of the 28x28 pixels. A
    patch of 4 shows hardly more than one pixel of a scan, and that at any scale: what a digit is
    follows from where its patches are, so that a model needs its table of positions, and can be
    tested on larger images. 6,000 images train and 599 test, each of a scan of its own.
    """
    random, (digits, labels) = stream("digits-covered", split, seed), scans(split)
    which = _drawn(random, len(digits), COVERED_IMAGES if split == "train" else len(digits))
    size = (COVERED_SIDE, COVERED_SIDE)
    large = [Image.fromarray(scan).resize(size, Image.Resampling.BILINEAR) for scan in digits]
    digit = np.clip(np.stack(large), 0, 1)[which, ..., None]
    ground = random.uniform(0, 0.7, (len(which), 1, 1, 3)).astype(np.float32)
    ink = ground + (1 - ground) * random.uniform(0.4, 1, (len(which), 1, 1, 1))
    picture = ground + digit * (ink - ground)
    for _ in range(COVERS):
        sides = random.randint(4, 11, size=(2, len(which)))
        first = random.randint(0, COVERED_SIDE - sides + 1)
        pixel = np.arange(COVERED_SIDE)
        inside = (pixel >= first[..., None]) & (pixel < (first + sides)[..., None])
        cover = inside[0][:, :, None] & inside[1][:, None, :]
        colour = random.random_sample((len(which), 1, 1, 3))
        picture = np.where(cover[..., None], colour, picture)
    return Pictures(np.round(255 * picture).astype(np.uint8), labels[which])


def digits_few(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """A digit of 8 pixels in one of 16 places on a dimmed photograph, of few scans; which?

    The seed draws twenty training scans of each class, of which a model can learn all and still
    fail on others: mixing and erasing images are to help then, and Tables 5 and 6 compare what they
    do to accuracy. Places are multiples of 4 in 20x20 pixels, so that patches see all digits alike
    and a small model learns in seconds. 1,600 images train and 599 test, each of a scan of its own.
    """
    random, (digits, labels) = stream("digits-few/2", split, seed), scans(split)
    if split == "train":
        of_each = [random.permutation(np.flatnonzero(labels == digit))[:FEW] for digit in range(10)]
        digits, labels = digits[np.concatenate(of_each)], labels[np.concatenate(of_each)]
    which = _drawn(random, len(digits), FEW_IMAGES if split == "train" else len(digits))
    whole = photos()
    boxes = {name: tiles(name, split, least=FEW_SIDE) for name in whole}
    picture = np.empty((len(which), FEW_SIDE, FEW_SIDE, 3), dtype=np.float32)
    for image, digit in zip(picture, digits[which], strict=True):
        name = list(whole)[random.randint(len(whole))]
        left, top, right, bottom = boxes[name][random.randint(len(boxes[name]))]
        x, y = random.randint((left, top), (right - FEW_SIDE + 1, bottom - FEW_SIDE + 1))
        image[:] = whole[name][y : y + FEW_SIDE, x : x + FEW_SIDE] * (GROUND / 255)
        row, column = 4 * random.randint((FEW_SIDE - SCAN) // 4 + 1, size=2)
        place = image[row : row + SCAN, column : column + SCAN]
        place += digit[..., None] * (1 - place)
    return Pictures(np.round(255 * picture).astype(np.uint8), labels[which])


def _drawn(random: np.random.RandomState, of: int, count: int) -> np.ndarray:
    """So many of the numbers below `of`, each as often as the others but for one time."""
    return random.permutation(np.resize(np.arange(of), count))


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
