"""The stand-in of blood cells, for DinoBloom (octic paper, Table 9)."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from vitrine.data.arrays import Pictures
from vitrine.data.opening import Split
from vitrine.data.photos import photos
from vitrine.data.stand_ins.pieces import scans, stream, tiles

SIDE = 16
IMAGES: dict[Split, int] = {"train": 1200, "val": 400}
CLASSES = np.array([0, 1, 2, 3, 4, 2, 5, 6, 7, 5])
"""The class of each digit: one turned by half is another, and so is one mirrored."""

SHARES = np.arange(1, 9) / 36
STAIN = np.array([0.35, 0.15, 0.45])  # purple
PALE = 0.85  # share of white in the ground: colours would tell images apart, not their cells


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
    flower, cut = photos()["flower"] / 255, tiles("flower", split)
    cut = cut[(cut[:, 2:] - cut[:, :2]).min(1) >= SIDE]
    labels = random.choice(8, size=IMAGES[split], p=SHARES)
    images = np.empty((len(labels), SIDE, SIDE, 3))
    for image, label in zip(images, labels, strict=True):
        left, top, right, bottom = cut[random.randint(len(cut))]
        x, y = random.randint(left, right - SIDE + 1), random.randint(top, bottom - SIDE + 1)
        image[:] = PALE + (1 - PALE) * flower[y : y + SIDE, x : x + SIDE]
        scan = drawn[random.choice(np.flatnonzero(CLASSES[digits] == label))]
        scan = np.rot90(scan.T if random.randint(2) else scan, random.randint(4))
        image += scan.repeat(2, 0).repeat(2, 1)[..., None] * (STAIN - image)
    return Pictures(np.round(255 * images.clip(0, 1)).astype(np.uint8), labels)
