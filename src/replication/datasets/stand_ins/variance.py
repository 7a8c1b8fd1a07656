"""The stand-in of ImageNet in the variance paper, composed of digit scans and photographs.

Each seed draws a composition of its own. No scan is in both splits.
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
    """So many of the numbers below `of`, each as often as the others but for one time."""
    return random.permutation(np.resize(np.arange(of), count))
