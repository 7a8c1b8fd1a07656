"""Search a laptop recipe's learning rate and epochs on images held out of its training split.

Each recipe is trained at each rate on four fifths of its training images and judged on the rest, a
backbone by its 20 nearest neighbours; the test images are never read. The rates of laptop recipes,
and the epochs of some, were chosen so: on the plain baseline of a comparison, for all its models
alike. Seeds are others than those that are published.

    python benchmarks/laptop_search.py shift swin_t-cifar10-circular --lr 1e-3 3e-3 1e-2 --output
        benchmarks/laptop_search_shift.csv    (in one line)

The score is top-1 accuracy, of segmenters mIoU; their images must lie below ``data``. Rows are
added to the file, one for each recipe, its rates, seed and number of steps; a row that is there is
not made again, so delete those of a stand-in that is composed anew.
Images composed of one scan may be on both sides: rates are compared, accuracies are high.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import torch
from torch.utils.data import Subset

from replication.engine.engine import TrainingRun, builder_of, engine_of
from replication.engine.model import load_weights
from replication.plan.catalog import load_catalog
from replication.plan.schema import merge
from vitrail.dinov2.probes import knn
from vitrail.errors import VitrailError, exit_on_error
from vitrail.images.opening import build
from vitrail.measures.accuracy import accuracy
from vitrail.measures.context import Trained

COLUMNS = ["paper", "recipe", "dataset", "lr", "group_lr", "seed", "steps"]
COLUMNS += ["held_out", "cpu_seconds"]
KEY = 7  # columns
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
    parser.add_argument(
        "--group-lr", nargs="+", type=float, help="of all groups that have their own"
    )
    parser.add_argument("--epochs", nargs="+", type=int, help="default: the recipe's")
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
        if recipe.model.weights_from:
            raise VitrailError(f"'{name}' is not trained from random weights")
        seeds = range(SEED, SEED + given.seeds)
        settings = product(given.lr, given.group_lr or [None], given.epochs or [None], seeds)
        for lr, group_lr, epochs, seed in settings:
            tried = with_epochs(with_group_rate(at_rate(recipe, lr), group_lr), epochs)
            info = without_a_fifth(paper.run(name).info)
            steps = str(tried.steps(info.train_images))
            rates = " ".join(f"{rate:g}" for rate in group_rates(tried).values())
            key = (given.paper, name, tried.data.dataset, f"{lr:g}", rates, str(seed), steps)
            if key not in known:
                row = [*key, *judged(tried, info, seed)]
                print(*row, flush=True)
                add(given.output, row)


def judged(recipe, info, seed: int) -> list[str]:
    """Train a recipe on a part of the images `searched`; return held-out score and CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path("data")
        if info.segmentation:
            data = link_divided(info, data, Path(folder) / "data")
        else:
            info = info.model_copy(update={"loader": "laptop_search:divided"})
        start = time.process_time()
        job = TrainingRun(recipe, seed, Path(folder) / "run", info, data)
        weights = engine_of(recipe).train(job)
        seconds = time.process_time() - start
        model = builder_of(recipe).build_model(recipe, info.classes)
        load_weights(model, weights, recipe)
        about = {"recipe": recipe, "info": info, "model": model.eval(), "folder": job.folder}
        score = SCORES[recipe.task](Trained("cpu", data, seed, **about))
    return [f"{score:.2f}", f"{seconds:.1f}"]


def without_a_fifth(info):
    """The entry of a divided dataset; the whole one is what `divided` opens from now on."""
    global searched
    searched = info
    held_out = -(-info.train_images // FIFTH)
    counts = {"train_images": info.train_images - held_out, "val_images": held_out}
    return info.model_copy(update=counts)


def at_rate(recipe, lr: float):
    """The recipe with another peak learning rate."""
    if recipe.task != "segmentation":
        optimizer = recipe.optimizer.model_copy(update={"lr": lr})
        return recipe.model_copy(update={"optimizer": optimizer})
    options = merge(recipe.options, {"optim_wrapper": {"optimizer": {"lr": lr}}})
    return recipe.model_copy(update={"options": options})


def group_rates(recipe) -> dict[str, float]:
    """The peak rates of the groups of parameters that have their own."""
    return recipe.optimizer.group_lr if recipe.task == "classification" else {}


def with_group_rate(recipe, rate: float | None):
    """The recipe with another rate of these groups; None leaves theirs."""
    if rate is None:
        return recipe
    rates = dict.fromkeys(group_rates(recipe), rate)
    optimizer = recipe.optimizer.model_copy(update={"group_lr": rates})
    return recipe.model_copy(update={"optimizer": optimizer})


def with_epochs(recipe, epochs: int | None):
    """The recipe with another number of epochs; None leaves its own."""
    if epochs is None:
        return recipe
    schedule = recipe.schedule.model_copy(update={"epochs": epochs})
    return recipe.model_copy(update={"schedule": schedule})


def link_divided(info, data: Path, divided: Path) -> Path:
    """Lay links to a training split's images and masks below `divided`, every fifth to validate."""
    parts = info.segmentation.train, info.segmentation.val
    for kind in ("img_path", "seg_map_path"):
        train, val = (Path(info.folder) / getattr(part, kind) for part in parts)
        for split in (train, val):
            (divided / split).mkdir(parents=True)
        for index, file in enumerate(sorted((data / train).iterdir())):
            split = train if index % FIFTH else val
            (divided / split / file.name).symlink_to(file.resolve())
    return divided


def segmentation_miou(trained) -> float:
    from replication.engine.segmentation.accuracy import (
        segmentation_accuracy,  # needs MMSegmentation
    )

    return segmentation_accuracy(trained)["mIoU"]


SCORES = {
    "classification": lambda trained: accuracy(trained)["top1"],
    "self_supervision": lambda trained: knn(trained)["top1/20"],
    "segmentation": segmentation_miou,
}


def read(path: Path) -> set[tuple[str, ...]]:
    """The keys of the rows that are there."""
    if not path.exists():
        add(path, COLUMNS)
    with path.open(newline="") as file:
        return {tuple(row[:KEY]) for row in csv.reader(file)}


def add(path: Path, row: list[str]) -> None:
    with path.open("a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerow(row)


if __name__ == "__main__":
    exit_on_error(main)
