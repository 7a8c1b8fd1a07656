"""Taking a measurement: its function on each seed's trained model, on a recipe, or on nothing."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

import torch

from replication.data.layout import check_layout
from replication.engine.engine import builder_of
from replication.engine.model import load_weights
from replication.plan.code import measuring_digest
from replication.plan.nodes import MeasurementNode
from replication.plan.recipe import EpochTraining
from replication.trained import require_own_weights
from vitrail import recipes
from vitrail.errors import VitrailError
from vitrail.images.opening import opened_once
from vitrail.measures.context import Context, Described, Trained, without_tf32
from vitrail.naming import import_function
from vitrail.provenance import provenance

ON = {Described.__name__: "recipe", Trained.__name__: "run"}
PROTOCOLS: dict[str, Any] = {
    protocol.__name__: protocol
    for protocol in (
        recipes.AugmentedRecipe,
        recipes.DINOv2Recipe,
        recipes.ModelRecipe,
        recipes.ViewRecipe,
    )
}


def take(job: MeasurementNode) -> dict[str, Any]:
    """Take a measurement on all its seeds; return the outcome of its node.

    That is ``values`` of each seed, the digest of the ``code``, the SHA-256 of the ``weights`` of
    each seed, and ``provenance``: where and when.

    Raises:
        VitrailError: the function does not exist, or a run is not trained or not as its record
            says.
    """
    if job.device == "cuda" and not torch.cuda.is_available():
        raise VitrailError(
            f"'{job.name}' is measured on a CUDA device, and this machine has none; choose another "
            "scale"
        )
    function = import_function(job.function, "artifacts.yaml")
    for info in job.reads:
        check_layout(info, job.data_root)
    without_tf32()
    # Before measuring: files may change meanwhile.
    origin = provenance(job.device, commit=job.commit)
    code = measuring_digest(job.function, job.args, job.recipe, job.reads)
    start = time.monotonic()
    values, weights = {}, {}
    with opened_once():
        for seed in job.seeds:
            given = subject(job, seed)
            _require_wanted(function, given, job)
            values[str(seed)] = dict(function(given, **job.args))
            if job.run is not None:
                trained = require_own_weights(job.run, seed)
                weights[str(seed)] = trained.outcome["sha256"][str(seed)]
    return {
        "values": values,
        "code": code,
        "weights": weights,
        "provenance": {**origin, "wall_seconds": round(time.monotonic() - start, 3)},
    }


def _require_wanted(function: Callable[..., Any], given: Context, job: MeasurementNode) -> None:
    """Refuse to hand a recipe to a function that is written for a trained model, and the like.

    A function that names no kind of recipe measures what is trained over epochs by timm's parts.
    """
    first = next(iter(inspect.signature(function).parameters.values())).annotation
    wanted, _, kind = str(getattr(first, "__name__", first)).rstrip("]").partition("[")
    if wanted not in ON:
        return
    if wanted not in {parent.__name__ for parent in type(given).__mro__}:
        raise VitrailError(
            f"{job.function} takes a {wanted} and measure '{job.name}' gives it a "
            f"{type(given).__name__}: write 'on: {ON[wanted]}' for it in artifacts.yaml"
        )
    recipe = getattr(given, "recipe", None)
    wanted = kind or EpochTraining.__name__
    declared = PROTOCOLS.get(wanted)  # by a measure of the library, which asks for attributes
    named = wanted in {parent.__name__ for parent in type(recipe).__mro__}
    if not (isinstance(recipe, declared) if declared else named):
        raise VitrailError(
            f"{job.function} measures a {wanted} and '{job.name}' is taken on a "
            f"{type(recipe).__name__}: correct the cell's measure or recipe in artifacts.yaml"
        )


def subject(job: MeasurementNode, seed: int) -> Context:
    """What the function is given: a trained model of one seed, a recipe, or only where it runs.

    Raises:
        VitrailError: the run is not trained, or its weights are not those that it was trained to.
    """
    where = (job.device, job.data_root, seed)
    context = Context(*where, workers=job.workers, datasets=job.datasets)
    if job.recipe is None or job.dataset is None:
        return context
    described = Described(**vars(context), recipe=job.recipe, info=job.dataset)
    if job.run is None:
        return described
    model = builder_of(job.recipe).build_model(job.recipe, job.dataset.classes)
    load_weights(model, job.run.weights(seed), job.recipe)
    facts = require_own_weights(job.run, seed).outcome["facts"][str(seed)]
    model = model.to(context.device).eval()
    folder = job.run.seed_folder(seed)
    return Trained(**vars(described), model=model, folder=folder, facts=facts)
