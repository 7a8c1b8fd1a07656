"""``vitrail rehearse``: two real steps of every recipe, before weeks of them are paid for.

Each recipe behind a target is trained as it stands (model, classes, transforms, optimiser,
schedule) on a miniature of its dataset in the dataset's own format on disk, but with a batch of two
images, fewer blocks of the largest models, and uncompiled on a CPU. It takes a step, saves a
checkpoint, resumes from it, takes the second, and is measured as the target asks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import json
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from replication.commands.cost import count_model
from replication.commands.state import runs_behind
from replication.data.miniature import write_miniature
from replication.engine.engine import Job, engine_of
from replication.engine.model import save_weights, starting_weights
from replication.engine.run_folder import checkpoints_of
from replication.evidence.comparison import numbers_of
from replication.plan.catalog import Artifact, Catalog, Measurement, Run, trained_run
from replication.plan.recipe import (
    AnyRecipe,
    Batch,
    Recipe,
    SegmentationRecipe,
    SelfSupervisionRecipe,
    Steps,
    Whole,
)
from replication.taking import take
from vitrail.commands import count, say
from vitrail.errors import VitrailError
from vitrail.files import write_atomically
from vitrail.images.opening import build
from vitrail.naming import import_function
from vitrail.provenance import duration, provenance

SEED = 0
IMAGES = 2  # of a step; Mixup pairs the images of a batch
STEPS = 2
SHORT = {"steps": STEPS, "shifts": STEPS}  # arguments of measures that only repeat what is done
LARGEST = 100.0  # million parameters: ViT-L takes a CPU minutes a step, and 10 GB
SHALLOW = 2  # blocks of a larger model


def rehearse(
    catalog: Catalog, target: str, device: str | None = None, largest: float = LARGEST
) -> bool:
    """Rehearse every recipe behind a target, print a line for each, return whether all passed.

    A model of more than `largest` million parameters has two blocks.

    Raises:
        VitrailError: no target is called so.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    artifacts = catalog.target(target).artifacts
    runs = runs_behind(artifacts)
    say(f"{target} at scale {catalog.scale.name}: {count(len(runs), 'recipe')} on {device}")
    failures = 0
    for number, run in enumerate(runs, start=1):
        start = time.perf_counter()
        _progress(f"[{number}/{len(runs)}] {run.name}")
        try:
            rehearse_run(run, artifacts, catalog, device, largest)
        # A fault of the code is just what a rehearsal is to find, and the other recipes go on.
        except Exception as error:
            failures += 1
            say(f"FAILED  {run.paper}/{run.name}: {_sentence(error)}")
            continue
        took = duration(time.perf_counter() - start)
        size = count_model(run.recipe, run.info.classes).parameters / 1e6
        notes = "".join(f"; {note}" for note in _notes(run, device, largest))
        say(f"ok      {run.paper}/{run.name}: {took}, {size:.3g} M parameters{notes}")
    say(f"{len(runs) - failures} of {count(len(runs), 'recipe')} passed.")
    return failures == 0


def rehearse_run(
    run: Run, artifacts: Iterable[Artifact], catalog: Catalog, device: str, largest: float = LARGEST
) -> None:
    """Train one run, resume it, and measure what the artifacts show of it, in a temporary folder.

    Raises:
        VitrailError: the recipe cannot be trained, a measure cannot be taken, or a cell's key is
            not in it.
    """
    shown = [
        (artifact, cell, cell.measurement)
        for artifact in artifacts
        for cell in artifact.cells
        if cell.measurement and cell.measurement.run and cell.measurement.run.folder == run.folder
    ]
    measurements = {measurement.path: measurement for _, _, measurement in shown}
    with tempfile.TemporaryDirectory(prefix="vitrail-") as temporary:
        roots = {f"{name}_root": f"{temporary}/{name}" for name in ("data", "runs")}
        here = Catalog(catalog.root, catalog.settings.model_copy(update=roots))
        here.scale = here.scale.model_copy(update={"workers": 0})
        recipe = miniature_recipe(run.recipe, device, largest)
        initial = _weights_of_source(run)
        run = dataclasses.replace(run, recipe=recipe, folder=here.runs_root / run.paper / run.name)
        measured_on = {name for m in measurements.values() for name in m.datasets}
        for name in sorted(measured_on | {recipe.data.dataset}):
            if here.datasets[name].source != "bundled":
                write_miniature(here.datasets[name], here.data_root, per_class=1, classes=IMAGES)
        if not isinstance(recipe, SegmentationRecipe):
            images: Any = build(run.info, "train", here.data_root)
            info = run.info.model_copy(update={"train_images": len(images)})
            run = dataclasses.replace(run, info=info)
        _progress("training")
        _train_in_two_attempts(run, here.data_root, device, initial)
        for path, measurement in measurements.items():
            _progress(f"measuring {measurement.name}")
            small: Any = {"run": run, "seeds": (SEED,), "device": device}
            small["args"] = _short(measurement)
            taken = take(here.measurement_job(dataclasses.replace(measurement, **small)))
            for artifact, cell, of_cell in shown:
                if of_cell.path == path:
                    numbers_of(artifact, cell, taken)


def _short(measurement: Measurement) -> dict[str, Any]:
    """The arguments of a measure, with fewer steps or shifts where it takes these."""
    taken = inspect.signature(import_function(measurement.function, "artifacts.yaml")).parameters
    return {**measurement.args, **{name: SHORT[name] for name in SHORT if name in taken}}


def miniature_recipe(recipe: AnyRecipe, device: str, largest: float = LARGEST) -> AnyRecipe:
    """The recipe with a batch of two, bound to no weights, such that the device can take it."""
    if isinstance(recipe, SegmentationRecipe):
        steps = min(STEPS, recipe.schedule.steps)
        small = {"schedule": Steps(steps=steps), "batch": Whole(size=IMAGES)}
        bare = recipe.model.model_copy(update={"pretrained": None})
        return recipe.model_copy(update={**small, "model": bare})
    model = recipe.model.model_copy(update={"pretrained": False, "weights_from": None})
    if _is_too_large(recipe, largest):
        args = {**model.args, "depth": SHALLOW}
        if "octic_depth" in args:  # of both kinds of blocks, one
            args["octic_depth"] = min(args["octic_depth"], SHALLOW - 1)
        model = model.model_copy(update={"args": args})
    batch = Batch(size=IMAGES, micro=min(IMAGES, recipe.batch.micro))
    changes: dict[str, object] = {"batch": batch, "model": model}
    if isinstance(recipe, SelfSupervisionRecipe):
        short = {"steps": STEPS, "warmup_steps": 1, "save_teacher_steps": 1}
        changes["schedule"] = recipe.schedule.model_copy(update=short)
    elif device == "cpu":
        changes["compile"] = False
        if recipe.precision == "fp16":
            changes["precision"] = "bf16"
    return recipe.model_copy(update=changes)


def _is_too_large(recipe: AnyRecipe, largest: float) -> bool:
    segments = isinstance(recipe, SegmentationRecipe)
    return not segments and count_model(recipe, classes=1).parameters > largest * 1e6


def _weights_of_source(run: Run) -> Path | None:
    """The weights that the run starts from, None where it starts from none or they are not here."""
    if run.source is None or not run.source.weights(SEED).is_file():
        return None
    return starting_weights(trained_run(run.source), SEED)


def _train_in_two_attempts(run: Run, data_root: Path, device: str, initial: Path | None) -> None:
    """One step, a checkpoint, and from there the second; leave what a finished run does."""
    folder, start = run.seed_folder(SEED), time.perf_counter()
    for steps in range(1, STEPS + 1):
        # The journal's progress is of no use here; what goes wrong comes as an exception.
        with contextlib.redirect_stderr(io.StringIO()):
            job = Job(
                recipe=run.recipe,
                seed=SEED,
                folder=folder,
                dataset=run.info,
                data_root=data_root,
                device=device,
                initial=initial,
                stop_after=steps,
            )
            weights = engine_of(run.recipe).train(job)
    if weights.is_file():
        return
    checkpoints = checkpoints_of(job)
    if (newest := checkpoints.latest()) is None:
        raise VitrailError(f"training left no checkpoint in {folder}")
    step, state = checkpoints.load(newest)
    if step != STEPS:
        raise VitrailError(f"training stopped after step {step} and not {STEPS}")
    trained = state["model"] if state["ema"] is None else state["ema"]
    save_weights(trained, weights, run.recipe, SEED)
    took = provenance(device, wall_seconds=time.perf_counter() - start, attempts=STEPS)
    write_atomically(folder / "provenance.json", json.dumps(took))


def _notes(run: Run, device: str, largest: float) -> list[str]:
    """How the rehearsal differs from the recipe, beyond the batch."""
    recipe, notes = run.recipe, []
    if recipe.model.published:
        notes.append("initial weights in place of published ones")
    if run.source and _weights_of_source(run) is None:
        notes.append(f"initial weights in place of those of {run.source.folder.name}, not trained")
    if _is_too_large(recipe, largest):
        notes.append(f"{SHALLOW} of its blocks")
    if not recipe.steps(run.info.train_images):
        return [*notes, "zero epochs: only measured"]
    if isinstance(recipe, Recipe) and device == "cpu":
        if recipe.precision == "fp16":
            notes.append("fp16 rehearsed as bf16")
        if recipe.compile:
            notes.append("not compiled")
    return notes


def _sentence(error: Exception) -> str:
    """What went wrong, on one line."""
    own = isinstance(error, VitrailError)
    return str(error) if own else f"{type(error).__name__}: {' '.join(str(error).split())}"


def _progress(text: str) -> None:
    """Say on standard error what is being done, as it may take minutes."""
    print(f"  {text} ...", file=sys.stderr, flush=True)
