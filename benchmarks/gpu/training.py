"""Trainings from resolved recipes: one that is killed and resumed, and those on Flowers-102.

Recipes are the plain data of ``recipes.json``, which `tools.gpu_inputs` writes. Samples, order,
augmentation, steps and checkpoints are those of `replication.training`. The training loop of that
package needs pydantic, which parses recipes. So `train` is another loop of the same steps; a test
checks that its weights have the same bits.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.gpu.running import FORK, Measured, Settings, Step
from replication.epoch_length import steps_per_epoch
from replication.images.caching import KeptSamples
from replication.images.loading import EvaluationSamples, Pictures, micro_batches
from replication.images.opening import SPLITS
from replication.images.transforms import eval_transform, train_transform
from replication.training.checkpoint import Checkpoints
from replication.training.distributed import Interruption, Team, shielded
from replication.training.model_factory import build_model
from replication.training.step import ClassifierTrainer
from vitrail.measures.accuracy import hits
from vitrail.measures.loading import eval_loader
from vitrail.seeding import seed_everything

RECIPES = Path(__file__).with_name("recipes.json")
MAPPINGS = ("args", "group_lr")  # fields that stay dictionaries
SEED = 0
CHECKPOINT_SECONDS = 30.0
RESUMED = "flowers102-ape"  # the recipe whose training is killed and resumed


def steps() -> Iterable[Step]:
    """Yield one step: a training that is killed and resumed."""
    yield Step("resume", resume, limit=100)


def flowers_steps() -> Iterable[Step]:
    """Yield a step for each recipe: the four embeddings by the text, then as published."""
    for name in json.loads(RECIPES.read_text(encoding="utf-8")):
        yield Step(f"flowers/{name}", partial(flowers, name=name), limit=3600)


def read_recipe(name: str) -> tuple[Any, Any, Mapping[str, float]]:
    """Return a recipe, its dataset, and the paper's printed numbers.

    Recipe and dataset have the attributes that training reads; the recipe also has its ``hash``.
    """
    entry = json.loads(RECIPES.read_text(encoding="utf-8"))[name]
    return resolved(entry["recipe"], entry["hash"]), attributes(entry["dataset"]), entry["printed"]


def resolved(values: Mapping[str, Any], identity: str) -> Any:
    """Return a recipe with the attributes that training reads, from plain data and its hash."""
    recipe = attributes(values)
    recipe.hash = identity
    recipe.batch.share = lambda devices: recipe.batch.size // recipe.batch.micro // devices
    return recipe


def attributes(values: Mapping[str, Any]) -> Any:
    """Turn nested dictionaries into objects with attributes, except those under `MAPPINGS`."""
    return SimpleNamespace(
        **{
            key: attributes(value) if isinstance(value, dict) and key not in MAPPINGS else value
            for key, value in values.items()
        }
    )


def train(
    recipe: Any,
    info: Any,
    images: Pictures,
    folder: Path,
    *,
    seed: int = SEED,
    device: str = "cpu",
    workers: int = 0,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> tuple[nn.Module, int, int]:
    """Train, or go on from the newest checkpoint in `folder`, as the engine's loop does.

    After SIGTERM, a checkpoint is saved and the function returns.

    Returns:
        the trained model on `device`, the number of steps done, and the number of all steps.
    """
    torch.backends.cudnn.allow_tf32 = True  # torch's default, which the engine leaves
    team, batch = Team.assemble(device), recipe.batch
    samples = KeptSamples(images, train_transform(recipe, info), seed)
    per_epoch = steps_per_epoch(len(samples), batch.size, batch.drop_last)
    steps = recipe.schedule.epochs * per_epoch
    seed_everything("initial weights", seed)
    model = build_model(recipe, info.classes)
    trainer = ClassifierTrainer(model, recipe, seed, info.classes, per_epoch, team)
    checkpoints, done = Checkpoints(folder, recipe.hash, seed, info.name), 0
    if newest := checkpoints.latest():
        done, state = checkpoints.load(newest)
        trainer.restore(state)
    with shielded():
        stream = micro_batches(
            samples,
            size=batch.size,
            micro=batch.micro,
            drop_last=batch.drop_last,
            start=done,
            stop=steps,
            workers=workers,
            pin_memory=team.device.type == "cuda",
        )
    saved_at = time.monotonic()
    with closing(stream), Interruption() as interruption:
        stopped = 0
        while done < steps and not stopped:
            trainer.step(done, islice(stream, batch.share(team.world)))
            done, stopped = done + 1, interruption.signal
            due = time.monotonic() - saved_at >= checkpoint_seconds
            if due or stopped or done == steps:
                if fault := trainer.fault(done):
                    raise FloatingPointError(fault)
                checkpoints.save(done, trainer.state())
                saved_at = time.monotonic()
    return trainer.result, done, steps


def resume(settings: Settings) -> Iterator[Measured]:
    """Train on noise twice, and once killed and resumed; count the tensors that differ."""
    folder = settings.runs / "resume"
    shutil.rmtree(folder, ignore_errors=True)
    weights = {}
    for run in ("straight", "again", "killed"):
        process = _start_resumable(settings, folder / run)
        if run == "killed":
            _wait_for_checkpoint(folder / run / "checkpoints", process)
            time.sleep(0.05)  # so that the kill interrupts a later step
            process.kill()
            process.join()
            if process.exitcode != -signal.SIGKILL:
                raise RuntimeError("the training ended before it could be killed")
            process = _start_resumable(settings, folder / run)
        process.join()
        if process.exitcode:
            raise RuntimeError(f"the training in {folder / run} ended with {process.exitcode}")
        weights[run] = torch.load(folder / run / "weights.pt")
    straight = weights.pop("straight")
    for run, others in weights.items():
        different = sum(not torch.equal(straight[name], others[name]) for name in straight)
        yield Measured(f"resume/{run}", different, f"of {len(straight)} tensors differ")
    shutil.rmtree(folder, ignore_errors=True)


def _start_resumable(settings: Settings, folder: Path) -> Any:
    process = FORK.Process(target=_resumable, args=(settings, folder))
    process.start()
    return process


def _resumable(settings: Settings, folder: Path) -> None:
    torch.set_num_threads(settings.threads)
    recipe, info, _ = read_recipe(RESUMED)
    count, recipe.schedule.epochs = (32, 1) if settings.quick else (512, 6)
    recipe.batch.size = recipe.batch.micro = count // 4
    random = np.random.RandomState(0)
    pixels = random.randint(256, size=(count, 32, 32, 3), dtype=np.uint8)
    images = Pictures(pixels, random.randint(info.classes, size=count))
    model, _, _ = train(
        recipe,
        info,
        images,
        folder / "checkpoints",
        device=settings.device,
        checkpoint_seconds=0,
    )
    torch.save({name: x.cpu() for name, x in model.state_dict().items()}, folder / "weights.pt")


def _wait_for_checkpoint(folder: Path, process: Any) -> None:
    while process.is_alive() and not any(folder.glob("step-*.pt")):
        time.sleep(0.005)


def flowers(settings: Settings, name: str) -> Iterator[Measured]:
    """Train one recipe of position's Table 2 on Flowers-102, and compare with the printed number.

    The images of the archive are resized already. In the recipes as published, the augmentation
    policy acts on the stored image, and its result is resized; here it acts on the resized image.
    """
    quantity = f"flowers/{name}"
    if not settings.archive.is_file():
        note = f"{settings.archive} is not there: see tools/gpu_inputs.py"
        yield Measured(quantity, None, note=note)
        return
    recipe, info, printed = read_recipe(name)
    train_images, val_images = (_pictures(settings.archive, info, split) for split in SPLITS)
    if settings.quick:
        recipe.schedule.epochs, recipe.batch.size, recipe.batch.micro = 1, 32, 32
        train_images, val_images = (
            Pictures(images.images[:64], images.labels[:64])
            for images in (train_images, val_images)
        )
    folder, begin = settings.runs / f"{name}-{recipe.hash}", time.monotonic()
    workers = 0 if settings.quick else settings.threads
    model, done, steps = train(
        recipe, info, train_images, folder, device=settings.device, workers=workers
    )
    if done < steps:
        note = f"stopped at step {done} of {steps}; it goes on from {folder}"
        yield Measured(quantity, None, note=note)
        return
    top1 = accuracy(model, EvaluationSamples(val_images, eval_transform(recipe, info)), settings)
    yield Measured(f"{quantity}/top-1", top1, "%", note=_beside(printed, top1, recipe, settings))
    yield Measured(f"{quantity}/seconds", time.monotonic() - begin, "s", note="of this attempt")


def _beside(printed: Mapping[str, float], top1: float, recipe: Any, settings: Settings) -> str:
    """Return the note of an accuracy: whether it is within the tolerance of the printed one."""
    if settings.quick:
        return "of one epoch of few images"
    agrees = abs(top1 - printed["top1"]) <= printed["tolerance"]
    said = f"printed {printed['top1']} ± {printed['std']}: {'within' if agrees else 'outside'}"
    return said + "; the policy acts on the resized image" * recipe.augmentation.resize_last


def _pictures(archive: Path, info: Any, split: str) -> Pictures:
    with np.load(archive) as arrays:
        index = arrays[f"{info.name}/{split}/index"]
        return Pictures(arrays["images"][index], arrays[f"{info.name}/{split}/labels"])


@torch.no_grad()
def accuracy(model: nn.Module, samples: EvaluationSamples, settings: Settings) -> float:
    """Return the top-1 accuracy in percent."""
    model.eval()
    right = torch.zeros(2, dtype=torch.int64)
    for images, labels in eval_loader(samples, batch_size=512):
        right += hits(model(images.to(settings.device)).float().cpu(), labels).sum(dim=0)
    return 100 * right[0].item() / len(samples)
