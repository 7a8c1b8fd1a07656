"""Taking a measurement: its function on each seed's trained model, on a recipe, or on nothing."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

import torch

from vitrine.errors import VitrineError
from vitrine.measures.context import Context, Described, Trained
from vitrine.plan.catalog import Catalog, Measurement
from vitrine.plan.functions import import_function
from vitrine.plan.recipe import Recipe
from vitrine.provenance import provenance
from vitrine.training.engine import engine_of
from vitrine.training.model import load_weights
from vitrine.training.receipts import require_own_weights

ON = {Described.__name__: "recipe", Trained.__name__: "run"}


def take(measurement: Measurement, catalog: Catalog) -> dict[str, object]:
    """Take a measurement on all its seeds.

    Raises:
        VitrineError: the function does not exist, or a run is not trained or not as its receipt
            says.
    """
    if measurement.device == "cuda" and not torch.cuda.is_available():
        raise VitrineError(
            f"'{measurement.name}' is measured on a CUDA device at scale '{catalog.scale.name}', "
            "and this machine has none; choose another scale"
        )
    function = import_function(measurement.function, "artifacts.yaml")
    run, on = measurement.run, measurement.on
    origin = provenance(measurement.device)  # before measuring: HEAD may move meanwhile
    start = time.monotonic()
    values = {}
    for seed in measurement.seeds:
        given = subject(measurement, catalog, seed)
        _require_wanted(function, given, measurement)
        values[str(seed)] = dict(function(given, **measurement.args))
    return {
        "paper": measurement.paper,
        "name": measurement.name,
        "function": measurement.function,
        "args": measurement.args,
        "seeds": list(measurement.seeds),
        "recipe": on.name if on else None,
        "recipe_hash": on.recipe.hash if on else None,
        "dataset": run.recipe.data.dataset if run else ", ".join(measurement.datasets) or None,
        "values": values,
        "provenance": {**origin, "wall_seconds": round(time.monotonic() - start, 3)},
    }


def _require_wanted(function: Callable[..., Any], given: Context, measurement: Measurement) -> None:
    """Refuse to hand a recipe to a function that is written for a trained model, and the like."""
    first = next(iter(inspect.signature(function).parameters.values())).annotation
    wanted, _, task = str(getattr(first, "__name__", first)).partition("[")
    if wanted not in ON:
        return
    if wanted not in {one.__name__ for one in type(given).__mro__}:
        raise VitrineError(
            f"{measurement.function} takes a {wanted} and measure '{measurement.name}' gives it a "
            f"{type(given).__name__}: write 'on: {ON[wanted]}' for it in artifacts.yaml"
        )
    task, kind = task.rstrip("]") or Recipe.__name__, type(getattr(given, "recipe", None)).__name__
    if task != kind:
        raise VitrineError(
            f"{measurement.function} measures a {task} and '{measurement.name}' is taken on a "
            f"{kind}: correct the cell's measure or recipe in artifacts.yaml"
        )


def subject(measurement: Measurement, catalog: Catalog, seed: int) -> Context:
    """What the function is given: a trained model of one seed, a recipe, or only where it runs.

    Raises:
        VitrineError: the run is not trained, or its weights are not those that it was trained to.
    """
    context = Context(
        device=measurement.device,
        data_root=catalog.data_root,
        seed=seed,
        workers=catalog.scale.workers,
    )
    run = measurement.on
    if run is None:
        return context
    described = Described(**vars(context), recipe=run.recipe, info=run.info)
    if measurement.run is None:
        return described
    model = engine_of(run.recipe).build_model(run.recipe, run.info.classes)
    weights = run.weights(seed)
    load_weights(model, weights, run.recipe)
    require_own_weights(weights, run, seed)
    model = model.to(context.device).eval()
    return Trained(**vars(described), model=model, folder=run.seed_folder(seed))
