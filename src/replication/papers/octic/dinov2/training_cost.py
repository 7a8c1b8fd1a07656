"""Hyperparameters and cost of a training by DINOv2 (octic, App. E.2, Table 6(b))."""

from __future__ import annotations

import gc
import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from replication.config.recipes.self_supervision import SelfSupervisionRecipe
from replication.context import Described, Values
from replication.images.loading import MicroBatch
from replication.measures.memory import MIB
from replication.measures.throughput import time_in_turns
from replication.papers.octic.dinov2.network import Network, build_model
from replication.papers.octic.dinov2.optimizer import Schedules, build_optimizer
from replication.papers.octic.dinov2.training import SelfSupervisionTrainer
from replication.training.distributed import Team
from replication.training.model_factory import Precision
from vitrail.errors import VitrailError


def hyperparameters(described: Described[SelfSupervisionRecipe]) -> Values:
    """Return a recipe's hyperparameters, read from its head, its optimiser and its schedules.

    Returns:
        ``batch_size``, ``adamw`` (1 or 0), ``lr`` (the peak), ``layer_scale`` and ``weight_decay``
        (the first), ``thousand_steps``, ``thousand_warmup_steps``, ``drop_path``, ``prototypes``,
        ``clip_grad``, ``momentum`` (the teacher's first), ``koleo_weight``, ``mask_probability``,
        ``mask_ratio/from`` and ``mask_ratio/to``.
    """
    recipe = described.recipe
    with torch.device("meta"):
        network: Any = Network(recipe, build_model(recipe, 0))
    layers = nn.ModuleDict({"blocks": nn.ModuleList([nn.Linear(1, 1)])})
    stand_in: Any = nn.ModuleDict({"backbone": layers})  # fused AdamW takes no meta tensors
    optimizer = build_optimizer(stand_in, recipe)
    schedules = Schedules(recipe, optimizer)
    schedules.step_update(0)
    weight_decay = max(group["weight_decay"] for group in optimizer.param_groups)
    schedules.step_update(recipe.schedule.warmup_steps)
    return {
        "batch_size": recipe.batch.size,
        "adamw": int(type(optimizer) is torch.optim.AdamW),
        "lr": schedules.lr,
        "layer_scale": recipe.model.args.get("init_values") or 1.0,
        "weight_decay": weight_decay,
        "thousand_steps": recipe.schedule.steps / 1000,
        "thousand_warmup_steps": recipe.schedule.warmup_steps / 1000,
        "drop_path": recipe.drop_path,
        "prototypes": network.head.last_layer.out_features,
        "clip_grad": recipe.optimizer.clip_grad,
        "momentum": schedules.momentum(0),
        "koleo_weight": recipe.koleo_weight,
        "mask_probability": recipe.masks.probability,
        "mask_ratio/from": recipe.masks.ratio[0],
        "mask_ratio/to": recipe.masks.ratio[1],
    }


def training_step(
    described: Described[SelfSupervisionRecipe],
    models: Mapping[str, Mapping[str, Any]],
    images: int = 32,
    passes: int = 20,
    warmup: int = 3,
    precision: Precision | None = None,
    compile: bool | None = None,
) -> Values:
    """Measure time and memory of a recipe's optimiser step with other backbones, on noise.

    Memory is measured for each backbone alone, with everything that a training needs: student,
    teacher, heads, losses, AdamW. For the times, all are on the device together and take turns, one
    step each. Backbones that differ in their name only, as stand-ins may, are measured once.

    Args:
        described: the recipe; its model is replaced.
        models: name and args of a backbone for each label; args override the recipe's.
        images: of a step, in one micro-batch; 32 is the batch of one of the paper's GPUs.
        passes: timed steps.
        warmup: steps before these.
        precision: of the models, that of the recipe if None. A CPU without instructions for half
            precision may take a hundred times as long for it as in single precision.
        compile: whether blocks are compiled, as the recipe says if None. On a CPU that takes
            longer than the steps.

    Returns:
        ``"<label>/..."`` with ``images_per_second`` (of the median step), ``spread``, half the
        distance between the quartiles of the steps' times in percent of the median (None of fewer
        than two steps), and ``peak``, the MiB allocated, None on a CPU.

    Raises:
        VitrailError: a model does not exist or refuses its arguments, or nothing is timed.
    """
    if passes < 1 or images < 2:
        raise VitrailError(
            f"passes is {passes} and images is {images}; give at least 1 of the one and 2 of the "
            "other, as KoLeo's loss needs neighbours"
        )
    recipe, seed = described.recipe, described.seed
    device = torch.device(described.device)
    batch = recipe.batch.model_copy(update={"size": images, "micro": images})
    changed: dict[str, SelfSupervisionRecipe] = {}
    equal: dict[str, str] = {}  # labels by that of the first equal one
    found: dict[str, str] = {}
    for label, fields in models.items():
        args = {**recipe.model.args, **fields.get("args", {})}
        model = recipe.model.model_copy(update={**fields, "args": args})
        changed[label] = recipe.model_copy(
            update={
                "model": model,
                "batch": batch,
                "precision": precision or recipe.precision,
                "compile": recipe.compile if compile is None else compile,
            }
        )
        equal[label] = found.setdefault(_structure(changed[label]), label)
    different = [label for label in changed if equal[label] == label]
    on_gpu = device.type == "cuda"
    peaks = {label: _peak(changed[label], device, seed) if on_gpu else None for label in different}
    calls = {label: _stepping(changed[label], device, seed) for label in different}
    seconds = time_in_turns(calls, described.device, passes, warmup)
    values: dict[str, float | None] = {}
    for label, first in equal.items():
        times = seconds[first]
        values[f"{label}/images_per_second"] = images / statistics.median(times)
        values[f"{label}/spread"] = _spread(times)
        values[f"{label}/peak"] = peaks[first]
    return values


def _structure(recipe: SelfSupervisionRecipe) -> str:
    """Return a description of a backbone's modules and shapes that does not contain its name."""
    with torch.device("meta"):
        model = build_model(recipe, 0)
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    return f"{model}{shapes}"


def _spread(times: Sequence[float]) -> float | None:
    """Return half the interquartile range in percent of the median; None for fewer than 2 times."""
    if len(times) < 2:
        return None
    first, median, third = statistics.quantiles(times, n=4, method="inclusive")
    return 50 * (third - first) / median


def _peak(recipe: SelfSupervisionRecipe, device: torch.device, seed: int) -> float:
    """Return the peak of allocated memory in MiB over two steps, alone on the device."""
    gc.collect()  # a student has reference cycles, and the next one needs its memory
    torch.cuda.reset_peak_memory_stats(device)
    step = _stepping(recipe, device, seed)
    step()
    step()
    return torch.cuda.max_memory_allocated(device) / MIB


def _stepping(
    recipe: SelfSupervisionRecipe, device: torch.device, seed: int
) -> Callable[[], object]:
    """Make a trainer; return a function that takes its next step, always on the same noise."""
    torch.manual_seed(seed)
    network = Network(recipe, build_model(recipe, 0))
    trainer = SelfSupervisionTrainer(network, recipe, seed, Team(0, 1, device))
    size, spec = recipe.batch.size, recipe.crops
    sides = [(2, recipe.data.image_size), (spec.local_count, spec.local_size)]
    crops = [torch.randn(size, n, 3, side, side) for n, side in sides if n]
    batch = MicroBatch(0, 0, crops, torch.zeros(size, dtype=torch.long))
    steps = itertools.count()
    return lambda: trainer.step(next(steps), [batch])
