"""CIFAR, SVHN and scikit-learn's digits: datasets of small images in a few arrays.

A pickle may run any code, and CIFAR's may have been placed by hand: our reader refuses a pickle
that makes anything but arrays. torchvision reads SVHN, here without its checksums: the download is
verified elsewhere, and miniatures in the same format must load.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from torchvision import datasets

from replication.images.loading import Pictures
from replication.images.opening import Split, members, stratified_split

ARRAYS = {
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),  # from NumPy 2 on
    ("_codecs", "encode"),  # bytes, in the protocols that Python 2 can read
}
"""The functions that a pickle calls to make arrays; none of them can run other code."""

TRAIN_FRACTION = 2 / 3  # of the digits


class _Arrays(pickle.Unpickler):
    """Unpickle plain containers and NumPy arrays; refuse a pickle that calls anything else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ARRAYS:
            raise pickle.UnpicklingError(f"it calls {module}.{name}, which no array needs")
        return super().find_class(module, name)


class SVHN(datasets.SVHN):
    """Street View House Numbers (Netzer et al., 2011) without checksums of its files."""

    split_list = {
        split: [url, name, None] for split, (url, name, _) in datasets.SVHN.split_list.items()
    }


class Digits(Pictures):
    """One split of the stand-in `digits`, as RGB images of 8x8 pixels.

    They are 1,797 real scans of handwritten digits, with pixels from 0 to 16, which scikit-learn
    contains (E. Alpaydin and C. Kaynak, UCI, 1998), so that small trainings need no download. Two
    thirds of the scans of each class are for training; no scan is in both splits.
    """

    def __init__(self, split: Split):
        images, labels = scans(split)
        gray = np.round(255 * images).astype(np.uint8)
        super().__init__(np.repeat(gray[..., None], 3, axis=-1), labels)


def scans(split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Return the digit scans of a split, (N, 8, 8) float32 in 0..1, and their labels, (N,) int."""
    bundled = load_digits()
    train, val = stratified_split(bundled.target.tolist(), TRAIN_FRACTION)
    chosen = members(train, val, split)
    return (bundled.images[chosen] / 16).astype(np.float32), bundled.target[chosen]


def cifar10(folder: Path, split: Split) -> Pictures:
    """Open CIFAR-10 (Krizhevsky, 2009); its test images are the validation split."""
    train = [f"data_batch_{number}" for number in range(1, 6)]
    names = train if split == "train" else ["test_batch"]
    return _cifar([folder / "cifar-10-batches-py" / name for name in names], "labels")


def cifar10_10k(folder: Path, split: Split) -> Pictures:
    """Open the first of CIFAR-10's five training batches (10,000 images) and all test images."""
    name = "data_batch_1" if split == "train" else "test_batch"
    return _cifar([folder / "cifar-10-batches-py" / name], "labels")


def cifar100(folder: Path, split: Split) -> Pictures:
    """Open CIFAR-100 with fine labels; its test images are the validation split."""
    name = "train" if split == "train" else "test"
    return _cifar([folder / "cifar-100-python" / name], "fine_labels")


def svhn(folder: Path, split: Split) -> SVHN:
    """Open SVHN's cropped digits; its test images are the validation split."""
    return SVHN(folder, split="train" if split == "train" else "test")


def svhn_10k(folder: Path, split: Split) -> Pictures:
    """Open the first 10,000 of SVHN's test images: the first four fifths are for training.

    The file ``test_32x32.mat`` is the publisher's, or has only these images.
    """
    whole = svhn(folder, "val")
    count = min(len(whole), 10_000)
    chosen = slice(count * 4 // 5) if split == "train" else slice(count * 4 // 5, count)
    images = whole.data[chosen].transpose(0, 2, 3, 1)  # torchvision has channels first
    return Pictures(images, whole.labels[chosen])


def digits(folder: Path, split: Split) -> Digits:
    """The unchanged scans of handwritten digits in scikit-learn; the class is the digit.

    Digits fill their images and are centred. A mirrored digit is not the same digit.
    """
    return Digits(split)


def _cifar(batches: Sequence[Path], labels: str) -> Pictures:
    read = []
    for file in batches:
        with file.open("rb") as opened:
            read.append(_Arrays(opened, encoding="latin1").load())  # Python 2 wrote them
    rows = np.vstack([batch["data"] for batch in read])  # (N, 3072): red, green, blue planes
    images = rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return Pictures(images, [int(label) for batch in read for label in batch[labels]])
