"""Search a laptop recipe's learning rate on images held out of its training split.

Each recipe is trained at each rate on four fifths of its training images and judged on the rest, a
backbone by its 20 nearest neighbours; the test images are never read. The rates of laptop recipes
were chosen so: on the plain baseline of a comparison, for all its models alike. Seeds are others
than those that are published.

    python benchmarks/laptop_search.py shift swin_t-cifar10 --lr 1e-3 3e-3 1e-2
        --output benchmarks/laptop_search_shift.csv

Rows are added to the file, one for each recipe, rate and seed; a row that is there is not made
again. Images composed of one scan may be on both sides: rates are compared, accuracies are high.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch.utils.data import Subset

from vitrine.data import build
from vitrine.errors import VitrineError, exit_on_error
from vitrine.measures.accuracy import accuracy
from vitrine.measures.context import Trained
from vitrine.plan.catalog import load_catalog
from vitrine.self_supervision.probes import knn
from vitrine.training.engine import Job, builder_of, engine_of
from vitrine.training.model import load_weights

COLUMNS = ["paper", "recipe", "dataset", "lr", "seed", "steps", "held_out_top1", "cpu_seconds"]
SEED = 100
FIFTH = 5

searched = None  # the entry of the dataset whose training split is divided


def divided(folder, split):
    """Open a part of a training split: every fifth image validates, the others train."""
    images = build(searched, "train", folder)
    chosen = [i for i in range(len(images)) if (i % FIFTH == 0) == (split == "val")]
    return Subset(images, chosen)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paper")
    parser.add_argument("recipes", nargs="+", help="plain baselines, as in recipes.yaml")
    parser.add_argument("--lr", nargs="+", type=float, required=True)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--scale", default="laptop")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()

    torch.set_num_threads(1)
    sys.modules["laptop_search"] = sys.modules[__name__]  # which the divided dataset names
    paper = load_catalog(scale=given.scale).paper(given.paper)
    known = read(given.output)
    for name in given.recipes:
        recipe = paper.recipe(name)
        if recipe.task == "segmentation" or recipe.model.weights_from:
            raise VitrineError(f"'{name}' is no classifier or backbone trained from random weights")
        for lr in given.lr:
            for seed in range(SEED, SEED + given.seeds):
                key = (given.paper, name, recipe.data.dataset, f"{lr:g}", str(seed))
                if key not in known:
                    row = [*key, *judged(paper, name, lr, seed)]
                    print(*row, flush=True)
                    add(given.output, row)


def judged(paper, name: str, lr: float, seed: int) -> list[str]:
    """Train a recipe at a rate; return its steps, held-out accuracy and CPU seconds."""
    global searched
    recipe = paper.recipe(name)
    optimizer = recipe.optimizer.model_copy(update={"lr": lr})
    recipe = recipe.model_copy(update={"optimizer": optimizer})
    searched = paper.run(name).info
    held_out = -(-searched.train_images // FIFTH)
    info = searched.model_copy(
        update={
            "loader": "laptop_search:divided",
            "train_images": searched.train_images - held_out,
            "val_images": held_out,
        }
    )
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        job = Job(recipe, seed, Path(folder), info, Path("data"))
        weights = engine_of(recipe).train(job)
        seconds = time.process_time() - start
        model = builder_of(recipe).build_model(recipe, info.classes)
        load_weights(model, weights, recipe)
        trained = Trained(
            "cpu", Path("data"), seed, recipe=recipe, info=info, model=model.eval(),
            folder=Path(folder),
        )  # fmt: skip
        self_supervised = recipe.task == "self_supervision"
        top1 = knn(trained)["top1/20"] if self_supervised else accuracy(trained)["top1"]
    return [str(recipe.steps(info.train_images)), f"{top1:.2f}", f"{seconds:.1f}"]


def read(path: Path) -> set[tuple[str, ...]]:
    """The keys of the rows that are there."""
    if not path.exists():
        add(path, COLUMNS)
    with path.open(newline="") as file:
        return {tuple(row[:5]) for row in csv.reader(file)}


def add(path: Path, row: list[str]) -> None:
    with path.open("a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerow(row)


if __name__ == "__main__":
    exit_on_error(main)
