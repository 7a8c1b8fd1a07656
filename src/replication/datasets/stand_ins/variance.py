"""The stand-in for ImageNet in the variance paper, composed of digit scans and photographs.

Each seed draws its own images. No scan is in both splits.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from replication.datasets.arrays import scans
from replication.images.loading import Pictures
from replication.images.opening import Split, role, stream
from replication.images.photos import photos, tiles

FEW, IMAGES, SIDE = 20, 1600, 20
SCAN = 8
GROUND = 0.3
"""The brightness that photographs keep behind the digits of `digits_few`."""


def digits_few(folder: Path, split: Split, seed: int = 0) -> Pictures:
    """A digit of 8 pixels, the class, at one of 16 positions on a dimmed photograph.

    The seed draws only twenty training scans of each class. A model can learn all of them and still
    fail on others; mixing and erasing should help then, and Tables 5 and 6 compare their effects on
    accuracy. Positions are multiples of 4 in 20x20 pixels, so that patches divide all digits alike
    and a small model learns in seconds. 1,600 images are for training, and 599 for validation, one
    of each validation scan.
    """
    random, (digits, labels) = stream("digits-few/2", split, seed), scans(split)
    if role(split) == "train":
        of_each = [random.permutation(np.flatnonzero(labels == digit))[:FEW] for digit in range(10)]
        digits, labels = digits[np.concatenate(of_each)], labels[np.concatenate(of_each)]
    which = _drawn(random, len(digits), IMAGES if role(split) == "train" else len(digits))
    whole = photos()
    boxes = {name: tiles(name, split, least=SIDE) for name in whole}
    picture = np.empty((len(which), SIDE, SIDE, 3), dtype=np.float32)
    for image, digit in zip(picture, digits[which], strict=True):
        name = list(whole)[random.randint(len(whole))]
        left, top, right, bottom = boxes[name][random.randint(len(boxes[name]))]
        x, y = random.randint((left, top), (right - SIDE + 1, bottom - SIDE + 1))
        image[:] = whole[name][y : y + SIDE, x : x + SIDE] * (GROUND / 255)
        row, column = 4 * random.randint((SIDE - SCAN) // 4 + 1, size=2)
        place = image[row : row + SCAN, column : column + SCAN]
        place += digit[..., None] * (1 - place)
    return Pictures(np.round(255 * picture).astype(np.uint8), labels[which])


def _drawn(random: np.random.RandomState, of: int, count: int) -> np.ndarray:
    """Return `count` of the numbers below `of`, in random order, each about equally often."""
    return random.permutation(np.resize(np.arange(of), count))
