"""``python -m vitrine.measures``: take one measurement and write its JSON."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

from vitrine.catalog import Catalog, Measurement, load_catalog
from vitrine.errors import VitrineError, exit_on_error
from vitrine.files import write_atomically
from vitrine.functions import import_function
from vitrine.measures.context import Context, Trained
from vitrine.provenance import provenance
from vitrine.training.model import build_model, load_weights


def main() -> None:
    """Measure every seed, then write all of it at once."""
    parser = argparse.ArgumentParser(prog="python -m vitrine.measures", description=__doc__)
    parser.add_argument("paper")
    parser.add_argument("measure", help="a measure's name in the paper's artifacts.yaml")
    parser.add_argument("--recipe", help="the run that it is taken on")
    parser.add_argument("--scale", required=True)
    parser.add_argument("--output", type=Path, help="the JSON; by default where the graph puts it")
    parser.add_argument("--data", default="data", help="folder of the datasets")
    parser.add_argument("--runs", default="runs", help="folder of the runs")
    args = parser.parse_args()

    catalog = load_catalog(scale=args.scale, data_root=args.data, runs_root=args.runs)
    measurement = catalog.paper(args.paper).measurement(args.measure, args.recipe)
    if args.output is not None and args.output != measurement.path:
        raise VitrineError(
            f"'{args.measure}' belongs in {measurement.path}, not in {args.output}: it was changed "
            "after this job was planned; start snakemake again"
        )
    write_atomically(measurement.path, json.dumps(take(measurement, catalog), indent=1) + "\n")


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


if __name__ == "__main__":
    exit_on_error(main)
