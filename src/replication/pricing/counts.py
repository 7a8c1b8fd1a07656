"""Counts for models and measures: parameters, FLOPs, and images that pass through a model.

It takes a second to build and count a large model, and ten seconds for a segmenter. So the models
of `COUNTED_SCALES` are counted once and stored in ``configs/costs.csv``, which ``python -m
replication.pricing.counts`` writes; any other model is counted when its cost is needed.
"""

from __future__ import annotations

import csv
import functools
import inspect
import io
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from replication.config.functions import import_function
from replication.config.recipe import Training, short_hash
from replication.plan.catalog import Catalog, load_catalog
from replication.records.specs import Measurement, Run
from replication.training.dispatch import builder_of
from vitrail.errors import VitrailError, exit_on_error

COUNTED = Path("configs") / "costs.csv"
COUNTED_SCALES = ("full", "workstation", "small")
NO_COST = {"weights_from", "pretrained", "drop_path_rule"}  # fields of a model without cost


@dataclass(frozen=True)
class ModelCost:
    """A model's parameters, and the FLOPs of a forward pass on one image (2 per multiply-add)."""

    parameters: int
    forward_flops: int


def model_key(recipe: Training, classes: int) -> str:
    """Return a digest of all that decides the cost of a recipe's model, without building it."""
    parts: Any = {"model": True, "options": True, "data": {"image_size": True}}
    plain = recipe.model_dump(mode="json", include=parts, exclude={"model": NO_COST})
    return short_hash([plain, classes])


def count_model(recipe: Training, classes: int) -> ModelCost:
    """Count a recipe's model on torch's meta device.

    Raises:
        VitrailError: there is no such model, or it refuses its arguments.
    """
    import torch

    from replication.measures import flops, parameters

    with _silently(), torch.device("meta"):
        builder = builder_of(recipe)
        model = builder.build_model(recipe, classes).eval()
        counted = flops.count(model, torch.empty(1, *builder.image_shape(recipe)))
    return ModelCost(int(parameters.count(model)["parameters"]), 2 * counted.products)


def passes_of(function: str, given: Mapping[str, Any]) -> Mapping[float, float] | None:
    """Return a measure's forward passes per image, by the image's side relative to the recipe's.

    `given` are the measure's arguments. None if the ``module:function`` does not declare its passes
    with `replication.context.passes`, or cannot be imported, such as measures of segmenters where
    MMSegmentation is not installed.
    """
    measure = _import(function)
    told = getattr(measure, "passes", None)
    if callable(told):
        told = told({**_defaults(measure), **given})
    return told if told is None or isinstance(told, Mapping) else {1: told}


def images_passed(measurement: Measurement) -> Mapping[float, float] | None:
    """Return the number of images that pass through a model to measure it, by their side.

    The side is relative to the recipe's. None for a measurement without a trained model, and if
    `passes_of` is None.
    """
    run = measurement.run
    if run is None:
        return None
    args = {**_defaults(_import(measurement.function)), **measurement.args}
    asked, info = args.get("images"), (*measurement.datasets, run.dataset)[0]
    images = min(asked or info.val_images, info.val_images)
    given = {
        **args,
        "images": images,
        "train_images": min(asked or info.train_images, info.train_images),
        "side": getattr(run.recipe.data, "image_size", None),  # None for scenes of various sizes
        "recipe": run.recipe,
    }
    passes = passes_of(measurement.function, given)
    return passes and {size: count * images for size, count in passes.items()}


@functools.cache
def _import(function: str) -> Any:
    """Import the measure ``module:function``; None if it cannot be imported."""
    with suppress(VitrailError), _silently():
        return import_function(function, "artifacts.yaml")


def _defaults(measure: Any) -> dict[str, Any]:
    """Return the default arguments of a measure; {} if it is None."""
    parameters = inspect.signature(measure).parameters.values() if measure else ()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


def _silently() -> redirect_stdout[io.StringIO]:
    """Suppress what MMSegmentation's packages print when they are imported."""
    return redirect_stdout(io.StringIO())


def models_of(catalog: Catalog) -> Iterator[tuple[str, Run, Training]]:
    """Yield a name, a run and a recipe for each model that is counted for a catalogue's cost.

    A model that is evaluated at several image sizes is counted at each. Rows that the papers do not
    have are included.
    """
    whole = catalog.extended()
    for run in whole.runs.values():
        yield f"{run.paper}/{run.name}", run, run.recipe
    for measurement in whole.measurements.values():
        if judged := measurement.run:
            name = f"{judged.paper}/{judged.name}"
            for size in images_passed(measurement) or ():
                yield f"{name} x {size:.3g}", judged, judged.recipe.at_size(size)


def read_counted(root: Path) -> dict[str, ModelCost]:
    """Read the costs of models that were counted before, by `model_key`; {} without their file.

    Raises:
        VitrailError: the file is damaged.
    """
    path = root / COUNTED
    if not path.is_file():
        return {}
    try:
        rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
        return {
            row["key"]: ModelCost(*(int(row[field.name]) for field in fields(ModelCost)))
            for row in rows
        }
    except (KeyError, TypeError, ValueError) as error:
        raise VitrailError(
            f"cannot read {path} ({error!r}): write it again with "
            "python -m replication.pricing.counts"
        ) from None


def write_counted(catalogs: Iterable[Catalog]) -> None:
    """Count every model of some catalogues and write the file of `read_counted`."""
    rows: dict[str, tuple[Any, ...]] = {}
    for catalog in catalogs:
        for name, run, recipe in models_of(catalog):
            key = model_key(recipe, run.dataset.classes)
            if key not in rows:
                rows[key] = (key, name, *astuple(count_model(recipe, run.dataset.classes)))
    with (catalog.root / COUNTED).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("key", "recipe", *(field.name for field in fields(ModelCost))))
        writer.writerows(rows.values())


if __name__ == "__main__":
    parser = ArgumentParser(description=f"Count the models that are priced, and write {COUNTED}.")
    parser.parse_args()  # it has no options
    exit_on_error(lambda: write_counted([load_catalog(scale=scale) for scale in COUNTED_SCALES]))
