"""Taking a measurement: its function on each seed's trained model, or on nothing."""

from __future__ import annotations

import time

import torch

from vitrine.catalog import Catalog, Measurement
from vitrine.errors import VitrineError
from vitrine.functions import import_function
from vitrine.measures.context import Context, Trained
from vitrine.provenance import provenance
from vitrine.training.model import build_model, load_weights


def take(measurement: Measurement, catalog: Catalog) -> dict[str, object]:
    """Take a measurement on all its seeds.

    Raises:
        VitrineError: the function does not exist, or a run is not trained.
    """
    if measurement.device == "cuda" and not torch.cuda.is_available():
        raise VitrineError(
            f"'{measurement.name}' is measured on a CUDA device at scale '{catalog.scale.name}', "
            "and this machine has none; choose another scale"
        )
    function = import_function(measurement.function, "artifacts.yaml")
    run = measurement.run
    start = time.monotonic()
    values = {
        str(seed): dict(function(subject(measurement, catalog, seed), **measurement.args))
        for seed in measurement.seeds
    }
    return {
        "paper": measurement.paper,
        "name": measurement.name,
        "function": measurement.function,
        "args": measurement.args,
        "seeds": list(measurement.seeds),
        "recipe": run.name if run else None,
        "recipe_hash": run.recipe.hash if run else None,
        "dataset": run.recipe.data.dataset if run else ", ".join(measurement.datasets) or None,
        "values": values,
        "provenance": provenance(
            measurement.device, wall_seconds=round(time.monotonic() - start, 3)
        ),
    }


def subject(measurement: Measurement, catalog: Catalog, seed: int) -> Context:
    """What the function is given: the trained model of one seed, or only where it runs."""
    device, data_root, workers = measurement.device, catalog.data_root, catalog.scale.workers
    run = measurement.run
    if run is None:
        return Context(device=device, data_root=data_root, seed=seed, workers=workers)
    model = build_model(run.recipe, run.info.classes)
    load_weights(model, run.seed_folder(seed) / "weights.safetensors", run.recipe)
    return Trained(
        device=device,
        data_root=data_root,
        seed=seed,
        workers=workers,
        model=model.to(device).eval(),
        recipe=run.recipe,
        info=run.info,
    )
