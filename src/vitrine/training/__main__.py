"""``python -m vitrine.training``: train some seeds of one recipe, in turn, or go on with them."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from vitrine.errors import VitrineError, exit_on_error
from vitrine.plan.catalog import load_catalog
from vitrine.training.engine import engine_of
from vitrine.training.receipts import starting_weights, write_receipt


def main() -> None:
    """Train, then write the receipt that the graph waits for."""
    parser = argparse.ArgumentParser(prog="python -m vitrine.training", description=__doc__)
    parser.add_argument("paper")
    parser.add_argument("recipe", help="a recipe's name, as vitrine show prints it")
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--scale", required=True)
    parser.add_argument("--receipt", type=Path, help="written when all seeds are trained")
    parser.add_argument("--data", default="data", help="folder of the datasets")
    parser.add_argument("--runs", default="runs", help="folder of the runs")
    args = parser.parse_args()

    catalog = load_catalog(scale=args.scale, data_root=args.data, runs_root=args.runs)
    run = catalog.paper(args.paper).run(args.recipe)
    if args.receipt is not None and args.receipt.parent != run.folder:
        raise VitrineError(
            f"recipe '{run.name}' belongs in {run.folder}, not in {args.receipt.parent}: it was "
            "changed after this job was planned; start snakemake again"
        )
    engine = engine_of(run.recipe)
    name = run.recipe.model.published
    published = catalog.weights_of(name) if name else None
    weights = {
        seed: engine.train(
            run.recipe,
            seed,
            run.seed_folder(seed),
            info=run.info,
            data_root=catalog.data_root,
            # A training of no epochs only copies weights, in a job that is given no GPU.
            device=catalog.scale.device if run.recipe.steps(run.info.train_images) else "cpu",
            workers=catalog.scale.workers,
            checkpoint_seconds=60 * catalog.scale.checkpoint_minutes,
            initial=published or starting_weights(run, seed),
        )
        for seed in args.seeds
    }
    if args.receipt is not None and int(os.environ.get("RANK", "0")) == 0:
        write_receipt(args.receipt, run, weights)


if __name__ == "__main__":
    exit_on_error(main)
