"""What is counted of models and measures: parameters, FLOPs, images that pass through a model.

To build and to count a large model takes a second, and a segmenter ten. So those of the scales of
`COUNTED_SCALES` are counted once, in ``configs/costs.csv``, which
``python -m replication.pricing.counts`` writes; every other model is counted when it is priced.
"""

from __future__ import annotations

import csv
import functools
import inspect
import io
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
COUNTED_SCALES = ("full", "workstation")
NO_COST = {"weights_from", "pretrained", "drop_path_rule"}  # of a model: they add nothing to it


@dataclass(frozen=True)
class ModelCost:
    """Parameters of a model, FLOPs of its forward pass on one image (2 per multiply-add)."""

    parameters: int
    forward_flops: int


def model_key(recipe: Training, classes: int) -> str:
    """Return a digest of all that decides what a recipe's model costs; nothing is built for it."""
    parts: Any = {"model": True, "options": True, "data": {"image_size": True}}
    plain = recipe.model_dump(mode="json", include=parts, exclude={"model": NO_COST})
    return short_hash([plain, classes])


def count_model(recipe: Training, classes: int) -> ModelCost:
    """Count a recipe's model on the meta device.

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
    """Forward passes that a measure takes for each image, by the side over the recipe's.

    None where the ``module:function`` does not say them by `replication.context.passes`, or cannot
    be imported, as those of segmenters where MMSegmentation is not installed.
    """
    measure = _import(function)
    told = getattr(measure, "passes", None)
    if callable(told):
        told = told({**_defaults(measure), **given})
    return told if told is None or isinstance(told, Mapping) else {1: told}


def images_passed(measurement: Measurement) -> Mapping[float, float] | None:
    """Images that pass forward through a trained model to measure it, by the side over its own.

    None of a measurement without a trained model, and where `passes_of` is None.
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
        "side": getattr(run.recipe.data, "image_size", None),  # of scenes each has its own
        "recipe": run.recipe,
    }
    passes = passes_of(measurement.function, given)
    return passes and {size: count * images for size, count in passes.items()}


@functools.cache
def _import(function: str) -> Any:
    """The measure of that ``module:function``, None where it cannot be imported."""
    with suppress(VitrailError), _silently():
        return import_function(function, "artifacts.yaml")


def _defaults(measure: Any) -> dict[str, Any]:
    """The arguments that a measure has by default."""
    parameters = inspect.signature(measure).parameters.values() if measure else ()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


def _silently() -> redirect_stdout[io.StringIO]:
    """Keep off the output what MMSegmentation's packages print when they are imported."""
    return redirect_stdout(io.StringIO())


def models_of(catalog: Catalog) -> Iterator[tuple[str, Run, Training]]:
    """What is counted to price all of a catalogue: names, runs, and recipes of their models.

    A model that is evaluated at several sizes is counted at each. The rows that the papers lack
    are among them.
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
    """Read what models cost that were counted before, by `model_key`.

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
    """Count every model of some catalogues, for `read_counted`."""
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
    exit_on_error(lambda: write_counted([load_catalog(scale=scale) for scale in COUNTED_SCALES]))
