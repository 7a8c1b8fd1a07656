"""Trials of a search: trainings judged on images that were held out of the training split.

Every fifth training image validates and the others train. A stand-in is composed anew of its
training scans and tiles, of which every fifth is held out, so that no scan is on both sides. What
the validation split shows, on which results are measured, is not read.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import Dataset, Subset

from replication.config.functions import import_function
from replication.config.tuning import FLOORS, Score, Trial, held_out_images, world_of
from replication.context import Trained
from replication.counting import FIFTH
from replication.images.opening import SPLITS, Split, build, holding_out, opened_once, stems
from replication.measures.pixel_baselines import floors, mask_floors
from replication.training.engine import TrainingRun, builder_of, engine_of
from replication.training.model import load_weights
from replication.training.run_folder import read_finished
from vitrail.errors import VitrailError

if TYPE_CHECKING:
    from replication.config.datasets import DatasetInfo
    from replication.config.recipe import Training


def take_trial(
    trial: Trial, recipe: Training, info: DatasetInfo, data_root: Path
) -> dict[Trial, Score]:
    """Train a recipe as a trial says, on one thread of the CPU, and judge it by its kind's score.

    Nothing is kept. Errors as those of trainings.
    """
    torch.set_num_threads(1)
    tried = recipe.with_rate(trial.rate).longer(trial.length)
    with (
        tempfile.TemporaryDirectory() as folder,
        opened_once(),
        divided(info, trial.seed, data_root, Path(folder) / "data") as (part, root),
    ):
        start = time.process_time()
        run = TrainingRun(tried, trial.seed, Path(folder) / "run", part, root)
        weights = engine_of(tried).train(run)
        seconds = time.process_time() - start
        model = builder_of(tried).build_model(tried, part.classes)
        load_weights(model, weights, tried)
        about: dict[str, Any] = {"recipe": tried, "info": part, "folder": run.folder}
        facts = read_finished(run.folder) or {}
        trained = Trained("cpu", root, trial.seed, model=model.eval(), facts=facts, **about)
        function, key = tried.score
        values = import_function(function, f"score of {tried.task}")(trained)
    return {trial: Score(values[key], seconds)}


def take_floors(info: DatasetInfo, seed: int, data_root: Path) -> dict[Trial, Score]:
    """Judge rules that need no network on the pixels of a dataset, as a seed draws it.

    Raises:
        VitrailError: the dataset cannot be opened, or has no masks and images of several sizes.
    """
    start = time.process_time()
    with (
        tempfile.TemporaryDirectory() as folder,
        divided(info, seed, data_root, Path(folder)) as (part, root),
    ):
        if part.segmentation:
            found = mask_floors(
                *_masked(part, "train", seed, root), *_masked(part, "val", seed, root)
            )
        else:
            found = floors(*_pixels(part, "train", seed, root), *_pixels(part, "val", seed, root))
    seconds = (time.process_time() - start) / len(found)
    same = (info.name, world_of(info), 1, 0.0, seed)
    return {Trial(FLOORS + rule, *same): Score(score, seconds) for rule, score in found.items()}


def _pixels(
    info: DatasetInfo, split: Split, seed: int, root: Path
) -> tuple[np.ndarray, np.ndarray]:
    """The images of a split as rows of pixels (N, D), in [0, 1], with their labels (N,)."""
    images: Any = build(info, split, root, seed)
    pairs = [images[index] for index in range(len(images))]
    pixels = [np.asarray(image) for image, _ in pairs]
    if len({image.shape for image in pixels}) > 1:
        raise VitrailError(
            f"the images of dataset '{info.name}' are of several sizes, and a search compares "
            "pixels; search on another dataset"
        )
    rows = np.stack(pixels).reshape(len(pixels), -1) / 255
    return rows.astype(np.float32), np.array([label for _, label in pairs])


def _masked(
    info: DatasetInfo, split: Split, seed: int, root: Path
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The images of a split, each (H, W, 3) in [0, 1], and their masks (H, W)."""
    images: Any = build(info, split, root, seed)
    pairs = [images[index] for index in range(len(images))]
    return [np.asarray(image) / 255 for image, _ in pairs], [mask for _, mask in pairs]


_whole: ContextVar[DatasetInfo] = ContextVar("whole")


@contextmanager
def divided(
    info: DatasetInfo, seed: int, data_root: Path, folder: Path
) -> Iterator[tuple[DatasetInfo, Path]]:
    """Give the entry of a dataset's training split that is taken apart, and its root of data.

    A dataset that MMSegmentation reads from folders is laid out anew below `folder`, by links.
    """
    if info.source == "bundled":
        with holding_out():
            images: Any = {split: build(info, split, data_root, seed) for split in SPLITS}
            sizes = {f"{split}_images": len(images[split]) for split in SPLITS}
            yield info.model_copy(update=sizes), data_root
        return
    held_out = held_out_images(info)
    counts = {"train_images": info.train_images - held_out, "val_images": held_out}
    if info.segmentation:
        _link(info, data_root, folder)
        yield info.model_copy(update=counts), folder
        return
    token = _whole.set(info)
    try:
        yield info.model_copy(update={**counts, "loader": f"{__name__}:part"}), data_root
    finally:
        _whole.reset(token)


def part(folder: Path, split: Split, seed: int) -> Dataset[Any]:
    """Open a part of the training split of the dataset that `divided` was given last."""
    info = _whole.get()
    root = folder if not info.folder else folder.parents[len(Path(info.folder).parts) - 1]
    images: Any = build(info, "train", root, seed)
    chosen = [index for index in range(len(images)) if (index % FIFTH == 0) == (split == "val")]
    return Subset(images, chosen)


def _link(info: DatasetInfo, data_root: Path, folder: Path) -> None:
    """Lay links to a training split's images and masks below `folder`, each pair on one side."""
    form = info.segmentation
    assert form is not None
    own = Path(info.folder)
    for index, name in enumerate(
        sorted(stems(data_root / own / form.train.img_path, form.img_suffix))
    ):
        split = form.train if index % FIFTH else form.val
        for kind, suffix in (("img_path", form.img_suffix), ("seg_map_path", form.seg_map_suffix)):
            link = folder / own / getattr(split, kind) / f"{name}{suffix}"
            link.parent.mkdir(parents=True, exist_ok=True)
            file = data_root / own / getattr(form.train, kind) / f"{name}{suffix}"
            link.symlink_to(file.resolve())
