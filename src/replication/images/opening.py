"""Open a split of a dataset; its entry in the registry names the function that reads its files."""

from __future__ import annotations

import inspect
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from replication.config.functions import import_function
from replication.epoch_length import FIFTH
from vitrail.errors import VitrailError
from vitrail.image_files import visible_files

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from replication.config.datasets import DatasetInfo

M = TypeVar("M")
Split = Literal["train", "val", "fit", "held_out"]
SPLITS: tuple[Split, ...] = ("train", "val")
TUNING: Mapping[Split, Split] = {"train": "fit", "val": "held_out"}
"""The splits that replace ``train`` and ``val`` to tune learning rates: two parts of ``train``."""


_opened: ContextVar[dict[tuple[Any, ...], Dataset[Any]] | None] = ContextVar("opened", default=None)


@contextmanager
def opened_once() -> Iterator[None]:
    """Let `build` open each split only once within the block, for all seeds of a job."""
    token = _opened.set({})
    try:
        yield
    finally:
        _opened.reset(token)


def build(info: DatasetInfo, split: Split, root: Path, seed: int = 0) -> Dataset[Any]:
    """Open a split of the dataset in ``root / info.folder``; an item is (RGB `PIL.Image`, label).

    The split depends on `seed` if the dataset's loader takes one; otherwise it is the same for all
    seeds. Within `opened_once`, a split that was opened before is returned again. If `info.part` is
    ``tuning``, both splits are parts of the training images, and the loader's ``val`` is not
    opened.

    Raises VitrailError if the dataset is not there, or its files cannot be read.
    """
    folder, opened = root / info.folder, _opened.get()
    open_split = _loader(info)
    options = {"seed": seed} if splits_by_seed(info) else {}
    key = info.loader, folder, info.part, split, *options.values()
    if opened is None or key not in opened:
        opener = partial(_of_part, info, split, partial(open_split, folder, **options))
        dataset = _open(info.name, opener, folder)
        if opened is None:
            return dataset
        opened[key] = dataset
    return opened[key]


def _of_part(
    info: DatasetInfo, split: Split, open_split: Callable[..., Dataset[Any]]
) -> Dataset[Any]:
    """Open a split of the part of a dataset that its entry names, ``all`` or ``tuning``.

    For ``tuning``, a bundled stand-in composes ``fit`` and ``held_out`` from sources that it
    divides by `members`. For other datasets `members` divides the training images.
    """
    if info.part == "all":
        return open_split(split)
    if info.source == "bundled":
        return open_split(TUNING[split])
    from torch.utils.data import Subset

    images: Any = open_split("train")
    return Subset(images, members(range(len(images)), (), TUNING[split]))


def splits_by_seed(info: DatasetInfo) -> bool:
    """Whether the split depends on the seed of a run: whether the loader takes a `seed`."""
    return "seed" in inspect.signature(_loader(info)).parameters


def _loader(info: DatasetInfo) -> Callable[..., Any]:
    return import_function(info.loader, "configs/datasets.yaml")


def _open(name: str, open_split: Callable[[], Any], folder: Path) -> Dataset[Any]:
    try:
        dataset: Dataset[Any] = open_split()
    except VitrailError:
        raise  # its message already says what to do
    except Exception as error:
        # A damaged pickle or .mat file raises many types of errors.
        raise VitrailError(
            f"dataset '{name}' in {folder} cannot be read "
            f"({type(error).__name__}: {error}); move that folder away and fetch it again"
        ) from error
    return dataset


def stems(folder: Path, suffix: str) -> set[str]:
    """Return relative paths, without `suffix`, of the files below a folder that end with it."""
    return {
        os.path.relpath(file, folder).removesuffix(suffix)
        for file in visible_files(folder)
        if file.endswith(suffix)
    }


def stratified_split(labels: Sequence[int], train_fraction: float) -> tuple[list[int], list[int]]:
    """Split indices into train and validation, each class by the same fraction, up to rounding.

    This is for datasets without an official split. `RandomState` is used and not `Generator`: NumPy
    guarantees that its stream never changes (NEP 19), so later versions make the same split.
    """
    random, classes = np.random.RandomState(0), np.asarray(labels)
    train, val = list[int](), list[int]()
    for label in np.unique(classes):
        members = random.permutation(np.flatnonzero(classes == label)).tolist()
        cut = round(train_fraction * len(members))
        train += members[:cut]
        val += members[cut:]
    return sorted(train), sorted(val)


def stream(name: str, split: Split, seed: int = 0) -> np.random.RandomState:
    """Return the generator for one split of a stand-in; its stream never changes (NEP 19).

    Each seed gives another composition.
    """
    drawn = f"/{seed}" if seed else ""
    return np.random.RandomState(zlib.crc32(f"{name}/{role(split)}{drawn}".encode()))


def role(split: Split) -> Split:
    """Return ``train`` for a split to train on, ``val`` for a split to evaluate on."""
    return "train" if split in ("train", "fit") else "val"


def members(train: Sequence[M], val: Sequence[M], split: Split) -> list[M]:
    """Return the items of a split: images, or the scans and tiles from which a stand-in is made.

    ``fit`` and ``held_out`` are parts of `train`: the items 0, 5, 10, ... are held out.
    """
    if split in ("train", "val"):
        return list(train if split == "train" else val)
    return [own for at, own in enumerate(train) if (at % FIFTH == 0) == (split == "held_out")]
