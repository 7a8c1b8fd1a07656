"""The stand-in `digits`: 1,797 real scans of handwritten digits that scikit-learn carries along.

Each scan is 8x8 pixels of 0..16 (E. Alpaydin and C. Kaynak, UCI, 1998). No download, no disk:
small trainings run anywhere. Two thirds of the scans of each class train; no scan is in both
splits.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from torch.utils.data import Dataset

from vitrine.data.splits import stratified_split

if TYPE_CHECKING:
    from vitrine.data.opening import Split

TRAIN_FRACTION = 2 / 3


class Digits(Dataset[tuple[Image.Image, int]]):
    """One split of the scans as RGB images of 8x8 pixels.

    Attributes:
        images: (N, 8, 8, 3) uint8
        labels: (N,) int
    """

    def __init__(self, split: Split):
        scans = load_digits()
        train, val = stratified_split(scans.target.tolist(), TRAIN_FRACTION)
        chosen = train if split == "train" else val
        gray = np.round(scans.images[chosen] * (255 / 16)).astype(np.uint8)
        self.images = np.repeat(gray[..., None], 3, axis=-1)  # (N, 8, 8) -> (N, 8, 8, 3)
        self.labels = scans.target[chosen]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return Image.fromarray(self.images[index]), int(self.labels[index])


def digits(folder: Path, split: Split) -> Digits:
    """Open the digits; they come with scikit-learn, so `folder` is not read."""
    return Digits(split)
