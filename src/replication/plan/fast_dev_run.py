"""Rehearsal of a scale: what ``--config fast_dev_run=true`` changes, so that each step is tried.

Each training takes two optimiser steps, each measure a few images and repetitions. Each dataset
that has files is replaced by made-up images in its format, and no published weights are loaded.
Transforms, losses and optimisers are the recipe's own; so are the models, but that Vision
Transformers have two blocks. The numbers mean nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from replication.config.datasets import DatasetInfo, miniature_name
from replication.config.paper import MeasureSpec
from replication.config.recipe import TimmTraining, Training
from replication.config.schema import StandIns, merge
from replication.config.settings import RunSettings, Scale

NOTE = "Made with fast_dev_run=true: two steps and a few images. These numbers mean nothing."
STEPS = 2
SIZE, MICRO = 4, 2  # images of a step, in two micro-batches
DEPTH = 2
MEM_MB, MINUTES = 8000, 60  # upper limits of the memory and the time that a node asks for

TAKES_DEPTH = re.compile(r"(^|_)(vit|deit3?|flexivit|naflexvit)(_|$)")
"""Matches timm's names of the models that take their number of blocks as the argument `depth`."""

AT_MOST = {
    "images": 256,  # test images: a miniature has few, and a model must be right about some
    "batch_size": 2,
    "passes": 1,
    "warmup": 0,
    "steps": 2,  # of a linear probe
    "iterations": 2,
    "permutations": 1,
    "estimates": 2,
    "reference": 16,  # permutations of the estimate with which the others are compared
    "parts": 1,
    "shifts": 2,
    "maps": 2,  # of a Monte Carlo estimate
}
"""Arguments of measures that are counts, with the largest value of each in a rehearsal."""

MADE_UP = 2  # largest number of images that a measure generates itself
RATES = [1.0e-3, 0.1]  # of linear probes; all 52 classifiers of 10,000 classes would take 10 GB


def scale_of(scale: Scale) -> Scale:
    """Return a scale as it is rehearsed: on a CPU, without worker processes that load images."""
    description = f"a rehearsal of scale {scale.name}; its numbers mean nothing"
    return scale.model_copy(update={"description": description, "device": "cpu", "workers": 0})


def run_settings_of(settings: RunSettings) -> RunSettings:
    """Return the settings of a run with one seed; each step asks for at most MEM_MB and MINUTES."""
    resources = {
        step: asked.model_copy(
            update={"mem_mb": min(MEM_MB, asked.mem_mb), "runtime": min(MINUTES, asked.runtime)}
        )
        for step, asked in ((step, settings.resources_of(step)) for step in settings.resources)
    }
    return settings.model_copy(update={"seeds": 1, "resources": resources})


def stand_ins(own: Mapping[str, str | None], registry: Mapping[str, DatasetInfo]) -> StandIns:
    """Return the dataset that is read in place of each: the miniature of its stand-in or of itself.

    `own` are the stand-ins of the scale; None stays None. Datasets without a miniature (those that
    come with a package) are read themselves.
    """
    read = {name: own.get(name, name) for name in registry} | dict(own)
    return {
        name: here if here is None or miniature_name(here) not in registry else miniature_name(here)
        for name, here in read.items()
        if here is None or here != name or miniature_name(here) in registry
    }


def changes_of(recipe: Training, device: str) -> dict[str, Any]:
    """Return the values to merge over a recipe so that it trains for two steps on this device.

    A training of no steps keeps none, except that of a segmenter, whose published weights are not
    loaded here. A training that saves teachers takes as many steps as it saves teachers, but at
    least two.
    """
    fields = recipe.model_dump(mode="json")
    own, model = fields["schedule"], fields["model"]
    shallow = _shallow(model) if isinstance(recipe, TimmTraining) else {}
    changes: dict[str, Any] = {"model": shallow, "batch": {"size": SIZE}}
    if "micro" in fields["batch"]:
        changes["batch"]["micro"] = MICRO
    if "epochs" in own:
        changes["schedule"] = {"steps": STEPS}
    elif "save_teacher_steps" in own and own["steps"]:
        kept = max(STEPS, own["steps"] // own["save_teacher_steps"])
        short = {"steps": kept, "planned_steps": None, "save_teacher_steps": 1}
        changes["schedule"] = {**short, "warmup_steps": min(1, own["warmup_steps"])}
    elif "save_teacher_steps" not in own:  # a segmenter, even one of no steps
        changes["schedule"] = {"steps": STEPS}
    if model.get("pretrained"):
        changes["model"]["pretrained"] = type(recipe.model).model_fields["pretrained"].default
    return changes | (_on_cpu(fields) if device == "cpu" else {})


def measure_of(spec: MeasureSpec, defaults: Mapping[str, Any], device: str) -> MeasureSpec:
    """Return a measure with one seed and arguments that make it take seconds on this device.

    `defaults` are the parameters of its function, each with its default. A measure of the paper's
    own recipe (`on: paper`) needs neither data nor training and is returned unchanged.
    """
    if spec.on == "paper":
        return spec
    known = {**defaults, **spec.args}
    changes = {name: value for name, value in _fewer(known).items() if name in defaults}
    if "images" in defaults and not (spec.on == "run" or spec.datasets):
        changes["images"] = min(MADE_UP, known["images"])
    if "rates" in defaults:
        changes["rates"] = RATES
    if device == "cpu":
        changes |= _on_cpu(known)
    args = merge(spec.args, changes)
    return spec.model_copy(update={"args": args, "seeds": spec.seeds and 1})


def _on_cpu(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes for a CPU: bf16 in place of fp16, which it lacks, and no compilation.

    Compiling takes longer than two steps.
    """
    changes: dict[str, Any] = {}
    if values.get("precision") == "fp16":
        changes["precision"] = "bf16"
    if values.get("compile"):
        changes["compile"] = False
    return changes


def _fewer(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return lower values of some arguments: counts (None means all) and depths of models."""
    changes: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            inside = _shallow(value) if "name" in value else _fewer(value)
            changes |= {name: inside} if inside else {}
        elif name in AT_MOST and (value is None or (type(value) is int and value > AT_MOST[name])):
            changes[name] = AT_MOST[name]
    return changes


def _shallow(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `args` that limit a model (`name`, `args`) to two blocks, one of them octic."""
    args = model.get("args", {})
    if not (TAKES_DEPTH.search(model["name"]) or "depth" in args) or args.get("depth", 3) <= DEPTH:
        return {}
    octic = {"octic_depth": min(1, args["octic_depth"])} if "octic_depth" in args else {}
    return {"args": {"depth": DEPTH, **octic}}
