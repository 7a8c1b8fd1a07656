"""CIFAR and SVHN: datasets of small images in a few array files.

torchvision reads them. It also compares each file with a checksum whenever it opens one; here
the downloaded archive was verified once, so the subclasses expect none (None is torchvision's
word for that), which lets miniatures in the same format load.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import vitrine.torchvision_compat  # noqa: F401  # isort: skip
from torchvision import datasets

if TYPE_CHECKING:
    from vitrine.data.opening import Split


class CIFAR10(datasets.CIFAR10):
    """CIFAR-10 (Krizhevsky, 2009) without checksums of its files."""

    train_list = [[name, None] for name, _ in datasets.CIFAR10.train_list]
    test_list = [[name, None] for name, _ in datasets.CIFAR10.test_list]
    meta = datasets.CIFAR10.meta | {"md5": None}


class CIFAR100(datasets.CIFAR100):
    """CIFAR-100 (Krizhevsky, 2009) without checksums of its files."""

    train_list = [[name, None] for name, _ in datasets.CIFAR100.train_list]
    test_list = [[name, None] for name, _ in datasets.CIFAR100.test_list]
    meta = datasets.CIFAR100.meta | {"md5": None}


class SVHN(datasets.SVHN):
    """Street View House Numbers (Netzer et al., 2011) without checksums of its files."""

    split_list = {
        split: [url, name, None] for split, (url, name, _) in datasets.SVHN.split_list.items()
    }


def cifar10(folder: Path, split: Split) -> CIFAR10:
    """Open CIFAR-10; its test images are the validation split."""
    return CIFAR10(folder, train=split == "train")


def cifar100(folder: Path, split: Split) -> CIFAR100:
    """Open CIFAR-100 with fine labels; its test images are the validation split."""
    return CIFAR100(folder, train=split == "train")


def svhn(folder: Path, split: Split) -> SVHN:
    """Open SVHN's cropped digits; its test images are the validation split."""
    return SVHN(folder, split="train" if split == "train" else "test")
