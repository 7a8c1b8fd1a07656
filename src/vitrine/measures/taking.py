"""Taking a measurement: its function on each seed's trained model, or on nothing."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path

import torch

from vitrine.catalog import Catalog, Measurement, Run
from vitrine.errors import VitrineError
from vitrine.functions import import_function
from vitrine.measures.context import Context, Trained
from vitrine.provenance import provenance
from vitrine.training.model import build_model, load_weights, weights_owner


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
    run = measurement.run
    origin = provenance(measurement.device)  # before measuring: HEAD may move meanwhile
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
        "provenance": {**origin, "wall_seconds": round(time.monotonic() - start, 3)},
    }


def subject(measurement: Measurement, catalog: Catalog, seed: int) -> Context:
    """What the function is given: the trained model of one seed, or only where it runs.

    Raises:
        VitrineError: the run is not trained, or its weights are not those that it was trained to.
    """
    device, data_root, workers = measurement.device, catalog.data_root, catalog.scale.workers
    run = measurement.run
    if run is None:
        return Context(device=device, data_root=data_root, seed=seed, workers=workers)
    model = build_model(run.recipe, run.info.classes)
    weights = run.seed_folder(seed) / "weights.safetensors"
    load_weights(model, weights, run.recipe)
    require_own_weights(weights, run, seed)
    return Trained(
        device=device,
        data_root=data_root,
        seed=seed,
        workers=workers,
        model=model.to(device).eval(),
        recipe=run.recipe,
        info=run.info,
    )


def require_own_weights(weights: Path, run: Run, seed: int) -> None:
    """Refuse weights of another seed, or others than the run's receipt says were trained.

    A rehearsal leaves no receipt; its weights need only name the seed.

    Raises:
        VitrineError: they are not the seed's own, or the receipt is damaged.
    """
    receipt = next((run.receipt(seeds) for seeds in run.jobs if seed in seeds), None)
    remedy = f"delete {receipt or run.folder} and {weights.parent} to train seed {seed} again"
    owner = weights_owner(weights).get("seed")
    if owner != seed:
        raise VitrineError(f"{weights} holds weights of seed {owner}, not of seed {seed}; {remedy}")
    if receipt is None or not receipt.is_file():
        return
    try:
        trained = json.loads(receipt.read_text(encoding="utf-8"))["sha256"][str(seed)]
    except (OSError, ValueError, KeyError, TypeError):
        raise VitrineError(
            f"{receipt} does not say which weights seed {seed} was trained to; {remedy}"
        ) from None
    with weights.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != trained:
        raise VitrineError(
            f"{weights} has not the SHA-256 of the weights that {receipt} names; {remedy}"
        )
