"""The variance paper's stand-in for ImageNet in Tables 5 and 6; Table 4's are in `places`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vitrine.data.arrays import Digits, Pictures
from vitrine.data.opening import Split
from vitrine.data.stand_ins.pieces import stream

A_CLASS = 20


def digits_few(folder: Path, split: Split) -> Pictures:
    """Twenty digit scans of each class to train on; all 599 test scans.

    Asked for is the digit. On 200 scans a model can overfit, which is when mixing and erasing
    images are to help: Tables 5 and 6 compare what they do to its accuracy.
    """
    scans = Digits(split)
    if split == "val":
        return scans
    random = stream("digits-few", split)
    chosen = np.sort(
        np.concatenate(
            [
                random.permutation(np.flatnonzero(scans.labels == digit))[:A_CLASS]
                for digit in range(10)
            ]
        )
    )
    return Pictures(scans.images[chosen], scans.labels[chosen])
