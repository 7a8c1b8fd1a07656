"""``vitrine plan --measure``: how fast this machine trains a recipe, from a few real steps."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from vitrine import data
from vitrine.commands import say
from vitrine.commands.cost import Device, training_images
from vitrine.data.loading import MicroBatch, TrainingSamples, micro_batches
from vitrine.data.miniature import write_miniature
from vitrine.data.transforms import train_transform
from vitrine.errors import VitrineError
from vitrine.plan.catalog import Catalog, Run
from vitrine.plan.recipe import Recipe
from vitrine.provenance import device_name
from vitrine.training.model import build_model
from vitrine.training.step import Trainer
from vitrine.training.team import Team

CPU = "cpu:"  # how provenance begins the name of a processor
TIMED_STEPS = 3
WHAT_IS_TIMED = {
    "cpu": "training steps with the reading and transforming of their images",
    "cuda": "training steps alone, on images fetched beforehand (workers must keep up with them)",
}


def time_recipes(runs: Iterable[Run], catalog: Catalog, kind: Device) -> dict[str, float]:
    """Time every distinct recipe that trains: images per second, by recipe hash.

    One that cannot run here is told and left out.

    Raises:
        VitrineError: this machine has no device of that kind.
    """
    device = "cuda" if torch.cuda.is_available() and kind.match != CPU else "cpu"
    name = device_name(device)
    if kind.match not in name:
        raise VitrineError(
            f"this machine's device is '{name}', not {kind.title}; choose --device accordingly"
        )
    speeds: dict[str, float] = {}
    for run in runs:
        if training_images(run) and run.recipe.hash not in speeds:
            try:
                speeds[run.recipe.hash] = speed = time_recipe(run, catalog, device)
            except VitrineError as error:
                say(f"{run.name} is not timed: {error}")
            else:
                say(f"{run.name}: {speed:.4g} images/s on this machine")
    if speeds:
        say(f"Timed: {WHAT_IS_TIMED[device]}.")
    say()
    return speeds


def time_recipe(run: Run, catalog: Catalog, device: str) -> float:
    """Images per second of one device over `TIMED_STEPS` training steps, after a first one.

    A step is one micro-batch, read and transformed as in training: from the dataset if it is
    there, else from a miniature of it, whose images are small and quickly read. In training a
    GPU's images come from workers meanwhile, so there only the steps are timed; a CPU does both.

    Raises:
        VitrineError: the recipe does not run on this device.
    """
    if not isinstance(run.recipe, Recipe):
        raise VitrineError("only classifiers can be timed; its logs will tell its speed")
    micro = run.recipe.batch.micro
    batch = run.recipe.batch.model_copy(update={"size": micro})
    recipe = run.recipe.model_copy(update={"batch": batch})
    team = Team.assemble(device)
    with tempfile.TemporaryDirectory(prefix="vitrine-") as temporary:
        root = catalog.data_root
        try:
            data.verify(run.info, root, counts=False)
        except VitrineError:
            root = Path(temporary)
            write_miniature(run.info, root, per_class=(micro + 1) // 2, classes=2)
        images = data.build(run.info, "train", root)
        samples = TrainingSamples(images, train_transform(recipe, run.info), seed=0)
        model = build_model(recipe, run.info.classes).to(team.device)
        per_epoch = len(samples) // micro
        trainer = Trainer(model, recipe, 0, run.info.classes, per_epoch, team)
        on_gpu = device == "cuda"
        batches: Iterator[MicroBatch] = micro_batches(
            samples, size=micro, micro=micro, start=0, stop=TIMED_STEPS + 1, pin_memory=on_gpu
        )
        if on_gpu:
            batches = iter(list(batches))
        # item() waits for the device; the first step also pays for caches and compilation.
        trainer.step(0, [next(batches)]).item()
        start = time.perf_counter()
        for step, micro_batch in enumerate(batches, start=1):
            trainer.step(step, [micro_batch]).item()
        return TIMED_STEPS * micro / (time.perf_counter() - start)
