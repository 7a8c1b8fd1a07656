"""The cost model: GPU hours of a run = epochs x training images x seeds / speed.

The speed is that in the logs of this recipe on this kind of device, or else estimated: training
FLOPs per image (so many forward passes as the task needs, three for a classifier) over the FLOP/s
that the device sustains, a range with its source in ``configs/hardware.yaml``.

An evaluation passes each validation image through the model so many times, at one size or several,
as its arguments say by the `RULES`. Measures without a rule (probes that are trained, features of
training images, illustrations) are not priced. At best a device does the forward FLOPs at the
fastest rate that it sustains; at worst an image takes as long as one of a training at the slowest,
since reading images may take the time.

Segmenters take seconds to import and to build. Those of full scale are counted once, in
``configs/segmentation/costs.csv``: ``python -m replication.commands.cost`` writes it.
"""

from __future__ import annotations

import csv
import json
import statistics
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import PositiveFloat

from replication.engine.engine import builder_of
from replication.plan.catalog import Catalog, Measurement, Run, load_catalog
from replication.plan.recipe import Recipe, SegmentationRecipe, Training, short_hash
from replication.plan.schema import Strict, parse, read_mapping
from vitrail.errors import VitrailError, exit_on_error

BYTES_OF_FLOAT = 4
CHECKPOINTS_KEPT = 2
BACKWARD = 3  # forward passes that a forward and a backward pass cost
SEGMENTERS = Path("configs") / "segmentation" / "costs.csv"


class Device(Strict):
    """One kind of device in ``configs/hardware.yaml``."""

    title: str
    match: str
    peak: PositiveFloat | None = None
    sustained: tuple[PositiveFloat, PositiveFloat]
    source: str


@dataclass(frozen=True)
class Range:
    """A quantity between two bounds, which are equal where it is measured."""

    low: float
    high: float

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def times(self, factor: float) -> Range:
        """Scale both bounds."""
        return Range(self.low * factor, self.high * factor)


ZERO = Range(0.0, 0.0)


@dataclass(frozen=True)
class ModelCost:
    """Parameters of a model, and FLOPs of its forward pass on one image (2 per multiply-add)."""

    parameters: int
    forward_flops: int


def load_devices(root: Path) -> dict[str, Device]:
    """Read ``configs/hardware.yaml``."""
    path = root / "configs" / "hardware.yaml"
    entries = read_mapping(path).items()
    return {name: parse(Device, one, f"{path}, device '{name}'") for name, one in entries}


def training_images(run: Run) -> int:
    """Images that the training of one seed takes in."""
    return run.recipe.images(run.info.train_images)


class Costs:
    """What the runs of a catalogue cost on one kind of device."""

    def __init__(self, catalog: Catalog, device: Device) -> None:
        self.device = device
        self._runs_root = catalog.runs_root
        self._models = read_segmenters(catalog.root)

    def model(self, run: Run, recipe: Training | None = None) -> ModelCost:
        """Count, once, the model of a run or of another `recipe` with its classes.

        Raises:
            VitrailError: there is no such model, or it refuses its arguments.
        """
        recipe, classes = recipe or run.recipe, run.info.classes
        key = model_key(recipe, classes)
        if key not in self._models:
            self._models[key] = count_model(recipe, classes)
        return self._models[key]

    def training_flops(self, run: Run) -> float:
        """FLOPs to train on one image."""
        return run.recipe.forward_passes * self.model(run).forward_flops

    def speed(self, run: Run) -> tuple[Range, str]:
        """How many images a second one device trains on, and how that is known."""
        logged = logged_speed(run, self.device, self._runs_root)
        if logged is not None:
            return Range(logged, logged), "its logs"
        flops = self.training_flops(run)
        return Range(*(rate / flops for rate in self.device.sustained)), "FLOPs"

    def seconds(self, run: Run) -> Range:
        """Seconds of one device to train one seed; trainings of zero epochs cost nothing."""
        if not (images := training_images(run)):
            return ZERO
        speed, _ = self.speed(run)
        return Range(images / speed.high, images / speed.low)

    def weights_bytes(self, run: Run) -> int:
        """Size of a seed's weights."""
        return BYTES_OF_FLOAT * self.model(run).parameters

    def checkpoints_bytes(self, run: Run) -> int:
        """At most what the checkpoints of a training under way take."""
        copies = 3 + run.recipe.averages_weights  # weights, two moments, maybe a moving average
        return CHECKPOINTS_KEPT * copies * self.weights_bytes(run) if training_images(run) else 0


def model_key(recipe: Training, classes: int) -> str:
    """Return a digest of all that decides what a recipe's model costs; nothing is built for it."""
    parts: Any = {"model": True, "options": True, "data": {"image_size": True}}
    return short_hash([recipe.model_dump(mode="json", include=parts), classes])


def read_segmenters(root: Path) -> dict[str, ModelCost]:
    """Read the segmenters that were counted before, by `model_key`.

    Raises:
        VitrailError: the file is damaged.
    """
    path = root / SEGMENTERS
    if not path.is_file():
        return {}
    try:
        rows = csv.DictReader(path.read_text().splitlines())
        return {
            one["key"]: ModelCost(int(one["parameters"]), int(one["forward_flops"])) for one in rows
        }
    except (KeyError, TypeError, ValueError) as error:
        raise VitrailError(
            f"cannot read {path} ({error!r}): write it anew with "
            "python -m replication.commands.cost"
        ) from None


def write_segmenters(catalog: Catalog) -> None:
    """Count every segmenter of a catalogue, for `read_segmenters`."""
    rows = {}
    for run in catalog.runs.values():
        if isinstance(run.recipe, SegmentationRecipe):
            key = model_key(run.recipe, run.info.classes)
            cost = count_model(run.recipe, run.info.classes)
            rows[key] = (key, f"{run.paper}/{run.name}", *astuple(cost))
    with (catalog.root / SEGMENTERS).open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("key", "recipe", *(field.name for field in fields(ModelCost))))
        writer.writerows(rows.values())


def count_model(recipe: Training, classes: int) -> ModelCost:
    """Count a recipe's model on the meta device."""
    import torch

    from vitrail.measures import architecture, flops

    builder = builder_of(recipe)
    with torch.device("meta"):
        model = builder.build_model(recipe, classes).eval()
        counted = flops.count(model, torch.empty(1, *builder.image_shape(recipe)))
    return ModelCost(int(architecture.count(model)["parameters"]), 2 * counted.products)


def logged_speed(run: Run, device: Device, runs_root: Path) -> float | None:
    """The median speed in the logs of runs of this recipe on this kind of device, if any."""
    speeds: list[float] = []
    for folder in runs_root.glob(f"*/*-{run.recipe.hash}/seed*"):
        try:
            provenance = json.loads((folder / "provenance.json").read_text())
            entries = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
            logged = [one["images_per_second"] for one in entries if "images_per_second" in one]
        except (OSError, ValueError):
            continue
        if device.match in provenance.get("device", ""):
            devices = provenance.get("processes", 1)
            speeds += [speed / devices for speed in logged]
    return statistics.median(speeds) if speeds else None


Passes = Mapping[float, int]
"""Forward passes of each image, by the size of the images over the recipe's."""


def _larger(arguments: Mapping[str, Any], models: int) -> Passes:
    """At each test size that is judged, one pass by each of the models."""
    sizes = set(arguments["sizes"]) - set(arguments.get("skipped", ()))
    return {size / arguments["trained_at"]: models for size in sorted(sizes)}


def _circular(arguments: Mapping[str, Any]) -> Passes:
    """Each condition's pairs of shifts, and each view once before any shift."""
    conditions = list((arguments.get("conditions") or {"": {}}).values())
    seen = {
        tuple({**arguments, **one}.get(key, default) for key, default in VIEW.items())
        for one in conditions
    }
    return {1: len(seen) + 2 * arguments.get("pairs", 1) * len(conditions)}


VIEW = {"erase": 0.0, "flip": None}  # what makes two conditions show the model other images

RULES: dict[str, Callable[[Mapping[str, Any]], Passes]] = {
    "vitrail.measures.accuracy:accuracy": lambda given: {1: 1},
    "vitrail.octic.rotation:rotated_accuracy": lambda given: {1: 2},
    "vitrail.measures.consistency:circular_consistency": _circular,
    "vitrail.measures.consistency:standard_consistency": lambda given: {
        1: len(given.get("modes", ("zero", "crop"))) * (1 + 2 * given.get("pairs", 1))
    },
    "vitrail.position.measures:position_bias": lambda given: {1: 1 + given.get("permutations", 16)},
    "vitrail.variance.measures:rescaling": lambda given: _larger(given, 3),
    "vitrail.variance.measures:amplification": lambda given: _larger(
        given, len({1.0, *given["factors"]})
    ),
    "replication.engine.segmentation.accuracy:segmentation_accuracy": lambda given: {1: 1},
    "replication.engine.segmentation.accuracy:calibrated_accuracy": lambda given: {1: 4},
    "replication.engine.segmentation.consistency:segmentation_consistency": lambda given: {1: 2},
}


def evaluation_seconds(measurement: Measurement, costs: Costs) -> Range | None:
    """Seconds of one device for all seeds of a measurement, None where its measure has no rule.

    Raises:
        VitrailError: there is no such model, or it refuses its arguments.
    """
    rule, run = RULES.get(measurement.function), measurement.run
    if rule is None or run is None:
        return None
    images = min(measurement.args.get("images") or run.info.val_images, run.info.val_images)
    flops = 0.0
    for size, passes in rule(measurement.args).items():
        recipe = run.recipe
        if size != 1 and isinstance(recipe, Recipe):
            side = round(size * recipe.data.image_size)
            data = recipe.data.model_copy(update={"image_size": side})
            args = {**recipe.model.args, "img_size": side}
            model = recipe.model.model_copy(update={"args": args})
            recipe = recipe.model_copy(update={"data": data, "model": model})
        forward = costs.model(run, recipe).forward_flops
        flops += passes * images * forward * len(measurement.seeds)
    slowest, fastest = costs.device.sustained
    return Range(flops / fastest, BACKWARD * flops / slowest)


if __name__ == "__main__":
    exit_on_error(lambda: write_segmenters(load_catalog(scale="full")))
