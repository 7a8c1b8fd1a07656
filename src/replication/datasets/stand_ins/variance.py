"""Stand-ins of ImageNet for Tables 3, 5 and 6 of the variance paper, composed of digit scans.

Each seed draws a composition of its own. No scan is in both splits.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from replication.datasets.arrays import scans
from replication.images.loading import Pictures
from replication.images.opening import Split, role, stream
from replication.images.photos import photos, tiles

COVERED_IMAGES, COVERED_SIDE = 6000, 28
COVERS = 2
FEW, FEW_IMAGES, FEW_SIDE = 20, 1600, 20
SCAN = 8
GROUND = 0.3
"""The brightness that photographs keep behind the digits of `digits_few`."""


def digits_covered(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """A digit as large as the image, brighter than its coloured ground, partly covered: the class.

    Two rectangles of any colour and of 4 to 10 pixels a side cover parts of the 28x28 pixels. A
    patch of 4 shows hardly more than one pixel of a scan, and that at any scale: what a digit is
    follows from where its patches are, so that a model needs its table of positions, and can be
    tested on larger images. 6,000 images train, and 599 test, one of each test scan.
    """
    random, (digits, labels) = stream("digits-covered", split, seed), scans(split)
    which = _drawn(random, len(digits), COVERED_IMAGES if role(split) == "train" else len(digits))
    size = (COVERED_SIDE, COVERED_SIDE)
    resized = (Image.fromarray(scan).resize(size, Image.Resampling.BILINEAR) for scan in digits)
    digit = np.clip([np.asarray(scan) for scan in resized], 0, 1)[which, ..., None]
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
    """A digit of 8 pixels in one of 16 places on a dimmed photograph, from few scans: the class.

    The seed draws twenty training scans of each class, of which a model can learn all and still
    fail on others: mixing and erasing images are to help then, and Tables 5 and 6 compare what they
    do to accuracy. Places are multiples of 4 in 20x20 pixels, so that patches see all digits alike
    and a small model learns in seconds. 1,600 images train, and 599 test, one of each test scan.
    """
    random, (digits, labels) = stream("digits-few/2", split, seed), scans(split)
    if role(split) == "train":
        of_each = [random.permutation(np.flatnonzero(labels == digit))[:FEW] for digit in range(10)]
        digits, labels = digits[np.concatenate(of_each)], labels[np.concatenate(of_each)]
    which = _drawn(random, len(digits), FEW_IMAGES if role(split) == "train" else len(digits))
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
