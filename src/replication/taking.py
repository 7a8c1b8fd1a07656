"""Taking a measurement: its function on each seed's trained model, on a recipe, or on nothing."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

import torch

from replication.data.layout import check_layout
from replication.engine.engine import builder_of
from replication.engine.model import load_weights, require_own_weights
from replication.plan.code import measuring_digest
from replication.plan.jobs import MeasurementJob
from replication.plan.recipe import Recipe
from vitrail.errors import VitrailError
from vitrail.measures.context import Context, Described, Trained, without_tf32
from vitrail.naming import import_function
from vitrail.provenance import provenance

ON = {Described.__name__: "recipe", Trained.__name__: "run"}


def take(job: MeasurementJob) -> dict[str, object]:
    """Take a measurement on all its seeds: the numbers of each, and what they rest on.

    That is the digest of the code, the SHA-256 of the weights of each seed, where and when.

    Raises:
        VitrailError: the function does not exist, or a run is not trained or not as its receipt
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
    origin = provenance(job.device)
    code = measuring_digest(job.function, job.args, job.recipe, job.reads)
    measured_on = job.datasets or (job.reads[:1] if job.run else ())
    start = time.monotonic()
    values, weights = {}, {}
    for seed in job.seeds:
        given = subject(job, seed)
        _require_wanted(function, given, job)
        values[str(seed)] = dict(function(given, **job.args))
        if job.run is not None:
            weights[str(seed)] = require_own_weights(job.run, seed)
    return {
        **{name: getattr(job, name) for name in ("paper", "name", "function", "args")},
        "seeds": list(job.seeds),
        "recipe": job.recipe_name,
        "recipe_hash": job.recipe.hash if job.recipe else None,
        "dataset": ", ".join(one.name for one in measured_on) or None,
        "values": values,
        "identity": job.identity,
        "code": code,
        "weights": weights,
        "provenance": {**origin, "wall_seconds": round(time.monotonic() - start, 3)},
    }


def _require_wanted(function: Callable[..., Any], given: Context, job: MeasurementJob) -> None:
    """Refuse to hand a recipe to a function that is written for a trained model, and the like."""
    first = next(iter(inspect.signature(function).parameters.values())).annotation
    wanted, _, task = str(getattr(first, "__name__", first)).rstrip("]").partition("[")
    if wanted not in ON:
        return
    if wanted not in {one.__name__ for one in type(given).__mro__}:
        raise VitrailError(
            f"{job.function} takes a {wanted} and measure '{job.name}' gives it a "
            f"{type(given).__name__}: write 'on: {ON[wanted]}' for it in artifacts.yaml"
        )
    kind = type(getattr(given, "recipe", None)).__name__
    if (task or Recipe.__name__) != kind:
        raise VitrailError(
            f"{job.function} measures a {task or Recipe.__name__} and '{job.name}' is taken on a "
            f"{kind}: correct the cell's measure or recipe in artifacts.yaml"
        )


def subject(job: MeasurementJob, seed: int) -> Context:
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
    require_own_weights(job.run, seed)
    model = model.to(context.device).eval()
    return Trained(**vars(described), model=model, folder=job.run.seed_folder(seed))
