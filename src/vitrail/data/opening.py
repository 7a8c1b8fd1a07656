"""Opening a dataset and checking that it is whole.

Its entry in the registry names the function that reads its files. The layout (files and class
folders) is checked whenever a dataset is opened; the numbers of images once, before any job starts,
so that a training of days does not find out on its last day.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vitrail.data.layout import check_counts, check_layout
from vitrail.errors import VitrailError
from vitrail.plan.source import import_function

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from vitrail.plan.datasets import DatasetInfo

Split = Literal["train", "val"]
SPLITS: tuple[Split, ...] = ("train", "val")


def build(info: DatasetInfo, split: Split, root: Path) -> Dataset[Any]:
    """Open a split of the dataset in ``root / info.folder``: (`PIL.Image` in RGB, int label).

    Raises VitrailError if it is not there, or its files cannot be read.
    """
    check_layout(info, root)
    open_split = import_function(info.loader, "configs/datasets.yaml")
    folder = root / info.folder
    try:
        dataset: Dataset[Any] = open_split(folder, split)
    except Exception as error:
        # A damaged pickle or .mat file fails in as many ways as it has bytes.
        raise VitrailError(
            f"dataset '{info.name}' in {folder} cannot be read "
            f"({type(error).__name__}: {error}); move that folder away and fetch it again"
        ) from error
    return dataset


def verify(info: DatasetInfo, root: Path, counts: bool = True) -> dict[str, int]:
    """Check that a dataset lies in ``root / info.folder`` as its entry says.

    With `counts` classes, images and masks are counted, too (a miniature has fewer). Returns the
    number of images that each split must have; VitrailError says what is missing or misplaced, and
    how to put it right.
    """
    check_layout(info, root)
    expected = {"train": info.train_images, "val": info.val_images}
    if counts and (info.segmentation or info.images):
        check_counts(info, root)
    elif counts:  # a few large files: only their reader can count
        for split in SPLITS:
            found = len(build(info, split, root))  # type: ignore[arg-type]  # torch's Dataset
            if found != expected[split]:
                raise VitrailError(
                    f"the {split} split of '{info.name}' has {found} images instead of "
                    f"{expected[split]}; move {root / info.folder} away and fetch it again"
                )
    return expected


def stratified_split(labels: Sequence[int], train_fraction: float) -> tuple[list[int], list[int]]:
    """Split indices into train and validation, each class by the same fraction, up to rounding.

    For datasets that come without a split. `RandomState` rather than `Generator`: NumPy promises
    that its stream never changes (NEP 19), so every later version makes the same split.
    """
    random, classes = np.random.RandomState(0), np.asarray(labels)
    train, val = list[int](), list[int]()
    for label in np.unique(classes):
        members = random.permutation(np.flatnonzero(classes == label)).tolist()
        cut = round(train_fraction * len(members))
        train += members[:cut]
        val += members[cut:]
    return sorted(train), sorted(val)


def stream(name: str, split: Split) -> np.random.RandomState:
    """Return the random numbers of one split of a stand-in, which never change (NEP 19)."""
    return np.random.RandomState(zlib.crc32(f"{name}/{split}".encode()))
