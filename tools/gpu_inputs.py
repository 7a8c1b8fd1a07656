"""Prepare the inputs of `make gpu-check`: resolved recipes, and the images of Flowers-102.

The machine with the GPU need not have pydantic, which parses recipes. So the recipes of
`position`'s Table 2 on Flowers-102 are resolved here, at scale full, and written to
``benchmarks/gpu/recipes.json``, which is committed. To keep the upload small, Flowers-102 is
decoded here, resized as for evaluation, and written to one archive, which is not committed:

    python -m tools.gpu_inputs               # recipes.json
    python -m tools.gpu_inputs --data data   # the archive, build/flowers102-32px.npz

Both ``flowers102`` and ``flower-data`` must lie in the folder of ``--data``. The archive has
``images`` (8189, 32, 32, 3) uint8. For each of the two datasets and its splits ``train`` and
``val``, ``<dataset>/<split>/index`` has the places of its samples in `images`, and
``<dataset>/<split>/labels`` their labels, both in the order of the dataset's loader.
"""

from __future__ import annotations

import argparse
import filecmp
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset
from torchvision import datasets

from replication.claims.comparison import tolerance
from replication.config.paper import read_reference
from replication.datasets.folders import flower_data, flowers102
from replication.datasets.verify import verify
from replication.images.opening import SPLITS
from replication.images.transforms import eval_transform
from replication.plan.catalog import Catalog, load_catalog
from vitrail.errors import VitrailError, exit_on_error
from vitrail.files import atomic_path, write_atomically
from vitrail.image_files import read_image

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "benchmarks" / "gpu" / "recipes.json"
EMBEDDINGS = ("ape", "auto-ape", "rope", "auto-rope")
ARCHIVE = Path("build") / "flowers102-32px.npz"
DECIMALS = 1  # of the printed accuracies
SETS = {"flowers102": flowers102, "flower-data": flower_data}


def catalog() -> Catalog:
    """Read the papers at full scale."""
    return load_catalog(ROOT, scale="full")


def resolved() -> dict[str, Any]:
    """Return the recipes of Flowers-102 in Table 2 of `position`, as plain data, by their names.

    The recipes by the paper's text come first, then those by the authors' code. Each has its
    ``hash``, the fields of its ``dataset`` that training reads, and in ``printed`` the paper's
    numbers for its embedding.
    """
    paper, printed, found = catalog().paper("position"), _printed(), {}
    for suffix in ("", "-as-published"):
        for embedding in EMBEDDINGS:
            run = paper.run(name := f"flowers102-{embedding}{suffix}")
            fields = {"name", "classes", "train_images", "val_images", "mean", "std"}
            found[name] = {
                "hash": run.recipe.hash,
                "recipe": run.recipe.model_dump(mode="json"),
                "dataset": run.dataset.model_dump(mode="json", include=fields),
                "printed": printed[embedding],
            }
    return found


def _printed() -> dict[str, dict[str, Any]]:
    """Return each embedding's printed accuracy, its deviation, and the tolerance for one run.

    Source: position, Table 2, Sec. 5.6.
    """
    reference = ROOT / "configs" / "papers" / "position" / "reference" / "table2.csv"
    numbers = {}
    for (row, column), printed in read_reference(reference).items():
        if row == "Flowers-102":
            name = column.rpartition(" / ")[2].removesuffix(" (ours)").lower()
            allowed = tolerance(1, None, printed.std, DECIMALS)
            numbers[name] = {"top1": printed.value, "std": printed.std, "tolerance": allowed}
    return numbers


def archive(data: Path) -> dict[str, np.ndarray]:
    """Decode Flowers-102, of which `data` has both versions, into the archive's arrays.

    Raises:
        VitrailError: a dataset is missing, or an image of flower-data is not one of flowers102.
    """
    papers = catalog()
    for name in SETS:
        verify(papers.datasets[name], data)
    run = papers.paper("position").run("flowers102-ape")
    recipe: Any = run.recipe
    resize, crop = eval_transform(recipe, run.dataset).transforms[:2]
    jpg = data / "flowers102" / "flowers-102" / "jpg"
    paths = sorted(jpg.glob("*.jpg"))
    arrays = {"images": np.stack([np.asarray(crop(resize(read_image(path)))) for path in paths])}
    place = {path.name: index for index, path in enumerate(paths)}
    for (name, opened), split in itertools.product(SETS.items(), SPLITS):
        files, labels = zip(*_listed(opened(data / name, split)), strict=True)
        for file in files:
            if file.name not in place or not filecmp.cmp(file, jpg / file.name, shallow=False):
                raise VitrailError(
                    f"{file} is not the file of that name in {jpg}: the two datasets must be of "
                    "the same images; fetch them again"
                )
        arrays[f"{name}/{split}/index"] = np.array([place[file.name] for file in files])
        arrays[f"{name}/{split}/labels"] = np.array(labels)
    return arrays


def _listed(opened: Any) -> list[tuple[Path, int]]:
    """Return the files and labels of an opened dataset, in its order."""
    if isinstance(opened, ConcatDataset):
        return [pair for part in opened.datasets for pair in _listed(part)]
    if isinstance(opened, datasets.Flowers102):
        return list(zip(opened._image_files, opened._labels, strict=True))
    return [(Path(path), label) for path, label in opened.samples]


def main() -> None:
    """Write the recipes, or with ``--data`` the archive."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="the root of all data, to make the archive")
    parser.add_argument("--output", type=Path, default=ARCHIVE)
    args = parser.parse_args()
    if args.data is None:
        write_atomically(RECIPES, json.dumps(resolved(), indent=1) + "\n")
        print(RECIPES)
        return
    arrays = archive(args.data)
    with atomic_path(args.output) as partial, partial.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    print(f"{args.output}: {args.output.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    exit_on_error(main)
