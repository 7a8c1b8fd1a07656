"""The cost model: GPU hours of a run = epochs x training images x seeds / speed.

The speed is that in the logs of this recipe on this kind of device, or else that of its published
training on such a device, or else estimated: training FLOPs per image (so many forward passes as
the task needs, three for a classifier) over the FLOP/s that the device sustains, a range with its
source in ``configs/hardware.yaml``. Another schedule, or other numbers of
the same optimizer, are taken to change no speed.

An evaluation passes each validation image through the model so many times, at one size or several,
as the measure itself says (`replication.context.passes`). Measures that do not are not priced.
At best a device does the
forward FLOPs at the fastest rate that it sustains; at worst an image takes as long as one of a
training at the slowest, since reading images may take the time. What a measure keeps on the disk,
it says itself, too (`replication.measures.price.keeps`).

To build and to count a large model takes a second, and a segmenter ten. So those of the scales of
`COUNTED_SCALES` are counted once, in ``configs/costs.csv``, which
``python -m replication.pricing.cost`` writes; every other model is counted when it is priced.
"""

from __future__ import annotations

import ast
import csv
import functools
import inspect
import json
import statistics
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import PositiveFloat

from replication.config.datasets import DatasetInfo
from replication.config.functions import import_function
from replication.config.paper import read_reference
from replication.config.python_source import price, syntax_tree
from replication.config.recipe import Training, short_hash
from replication.config.schema import Strict, parse, read_mapping
from replication.plan.catalog import Catalog, load_catalog
from replication.plan.module_digest import file_of
from replication.records.nodes import TrainingNode
from replication.records.records import Record, read_sound
from replication.records.specs import Measurement, Run, record_of
from replication.report.ledger import published_folder, read_published
from replication.training import CHECKPOINTS_KEPT
from replication.training.dispatch import builder_of
from vitrail.errors import VitrailError, exit_on_error, require_known

BYTES_OF_FLOAT = 4
BACKWARD = 3  # forward passes that a forward and a backward pass cost
ASSUMED_DEVICE = {"cpu": "cpu", "cuda": "a100"}  # the papers trained on A100s
KEPT = "replication.measures.resume"
COUNTED = Path("configs") / "costs.csv"
COUNTED_SCALES = ("full", "workstation")
NO_COST = {"weights_from", "pretrained", "drop_path_rule"}  # of a model: they add nothing to it


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

    @property
    def hours(self) -> list[float]:
        """Both bounds of seconds, in hours."""
        return [self.low / 3600, self.high / 3600]


ZERO = Range(0.0, 0.0)


@dataclass(frozen=True)
class ModelCost:
    """Parameters of a model, FLOPs of its forward pass on one image (2 per multiply-add).

    `outputs` is the length of what it gives for an image, 0 for maps.
    """

    parameters: int
    forward_flops: int
    outputs: int


def load_devices(root: Path) -> dict[str, Device]:
    """Read ``configs/hardware.yaml``."""
    path = root / "configs" / "hardware.yaml"
    entries = read_mapping(path).items()
    return {name: parse(Device, entry, f"{path}, device '{name}'") for name, entry in entries}


def costs_on(catalog: Catalog, device: str | None) -> tuple[str, Costs]:
    """Return a device's name and the costs on it; None takes one of the scale's kind.

    Raises:
        VitrailError: ``configs/hardware.yaml`` is damaged or has no such device.
    """
    devices = load_devices(catalog.root)
    name = device or ASSUMED_DEVICE[catalog.scale.device]
    require_known("device", name, devices)
    return name, Costs(catalog, devices[name])


def training_images(run: Run) -> int:
    """Images that the training of one seed takes in."""
    return run.recipe.images(run.dataset.train_images)


class Costs:
    """What the runs of a catalogue cost on one kind of device."""

    def __init__(self, catalog: Catalog, device: Device) -> None:
        self.device = device
        self._catalog, self._runs_root = catalog, catalog.runs_root
        self._datasets = catalog.datasets
        self._models = read_counted(catalog.root)

    def model(self, run: Run, recipe: Training | None = None) -> ModelCost:
        """Count, once, the model of a run or of another `recipe` with its classes.

        Raises:
            VitrailError: there is no such model, or it refuses its arguments.
        """
        recipe, classes = recipe or run.recipe, run.dataset.classes
        key = model_key(recipe, classes)
        if key not in self._models:
            self._models[key] = count_model(recipe, classes)
        return self._models[key]

    def judged_on(self, measurement: Measurement, run: Run) -> DatasetInfo:
        """The dataset that a trained model is judged on: that of its measure, or its own."""
        return measurement.datasets[0] if measurement.datasets else run.dataset

    def training_flops(self, run: Run) -> float:
        """FLOPs to train on one image."""
        return run.recipe.forward_passes * self.model(run).forward_flops

    def speed(self, run: Run) -> tuple[Range, str]:
        """How many images a second one device trains on, and how that is known."""
        logged = logged_speed(self._known(run), self.device, self._runs_root)
        if logged is not None:
            return Range(logged, logged), "its logs"
        if (published := self._published_speeds.get(_speed_key(run.name, run.recipe))) is not None:
            return Range(published, published), "published"
        if printed := self._as_printed(run):
            images = training_images(run)
            return Range(images / printed.high, images / printed.low), "the paper"
        flops = self.training_flops(run)
        return Range(*(rate / flops for rate in self.device.sustained)), "FLOPs"

    def seconds(self, run: Run) -> Range:
        """Seconds of one device to train one seed; trainings of zero epochs cost nothing."""
        if not (images := training_images(run)):
            return ZERO
        speed, _ = self.speed(run)
        return Range(images / speed.high, images / speed.low)

    def _known(self, run: Run) -> Run:
        """The catalogue's run of that name, if that trains as fast, else the run itself."""
        own = self._catalog.paper(run.paper).run(run.name)
        return own if _speed_key(own.name, own.recipe) == _speed_key(run.name, run.recipe) else run

    @functools.cached_property
    def _published_speeds(self) -> dict[str, float]:
        """Images a second of the scale's published trainings on such a device, by `_speed_key`."""
        speeds: dict[str, list[float]] = {}
        records: Mapping[Path, Record] = {}
        with suppress(VitrailError):  # damaged ones tell no speed
            records = read_published(published_folder(self._catalog))
        for record in records.values():
            if isinstance(record.node, TrainingNode):
                key = _speed_key(record.node.run.name, record.node.run.recipe)
                facts = record.outcome["facts"]
                # A training of zero epochs has the speed 0.
                speed = facts.get("images_per_second", 0) / facts["processes"]
                if speed and self.device.match in facts["device"]:
                    speeds.setdefault(key, []).append(speed)
        return {key: statistics.median(found) for key, found in speeds.items()}

    def _as_printed(self, run: Run) -> Range | None:
        """Seconds of this device by what the paper says of an A100, over the ratio of their peaks.

        None where the paper says nothing, or this device has no peak.
        """
        if self.device.peak is None or (printed := self.printed(run)) is None:
            return None
        theirs = load_devices(self._catalog.root)[ASSUMED_DEVICE["cuda"]]
        return printed.times((theirs.peak or self.device.peak) / self.device.peak)

    def printed(self, run: Run) -> Range | None:
        """Seconds of one A100 that the paper says a seed took, None where it says nothing.

        It is of the paper's own recipe alone, so at other scales nothing is known.

        Raises:
            VitrailError: ``paper.yaml`` names a row that the reference file does not have.
        """
        paper = self._catalog.paper(run.paper)
        if not paper.as_printed(run.name):
            return None
        for cost in paper.info.costs:
            if any(fnmatchcase(run.name, pattern) for pattern in cost.recipes):
                file = paper.folder / "reference" / f"{cost.reference}.csv"
                cells = read_reference(file)
                hours = []
                for row in cost.rows:
                    require_known(f"{file}: row", row, [known for known, _ in cells])
                    hours.append(float(cells[row, cost.column].value) / cost.trainings)
                return Range(min(hours), max(hours)).times(3600)
        return None

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
    plain = recipe.model_dump(mode="json", include=parts, exclude={"model": NO_COST})
    return short_hash([plain, classes])


def models_of(catalog: Catalog) -> Iterator[tuple[str, Run, Training]]:
    """What is counted to price all of a catalogue: names, runs, and recipes of their models.

    A model that is evaluated at several sizes is counted at each. The rows that the papers lack
    are among them.
    """
    whole = catalog.extended()
    for run in whole.runs.values():
        yield f"{run.paper}/{run.name}", run, run.recipe
    costs = costs_on(whole, None)[1]
    for measurement in whole.measurements.values():
        if judged := measurement.run:
            name = f"{judged.paper}/{judged.name}"
            given = _given(measurement, judged, costs)
            for size in passes_of(measurement.function, given) or ():
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
        counted = {
            row["key"]: [int(row[field.name]) for field in fields(ModelCost)] for row in rows
        }
        return {key: ModelCost(*numbers) for key, numbers in counted.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise VitrailError(
            f"cannot read {path} ({error!r}): write it anew with python -m replication.pricing.cost"
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


def count_model(recipe: Training, classes: int) -> ModelCost:
    """Count a recipe's model on the meta device."""
    import torch

    from replication.measures import flops
    from replication.measures import parameters as architecture

    builder = builder_of(recipe)
    given: list[Any] = []
    with torch.device("meta"):
        model = builder.build_model(recipe, classes).eval()
        model.register_forward_hook(lambda _model, _images, output: given.append(output))
        counted = flops.count(model, torch.empty(1, *builder.image_shape(recipe)))
    outputs = given[0].shape[-1] if isinstance(given[0], torch.Tensor) else 0
    parameters = int(architecture.count(model)["parameters"])
    return ModelCost(parameters, 2 * counted.products, outputs)


def _speed_key(name: str, recipe: Training) -> str:
    """Return a digest of what decides how fast a recipe trains on one device.

    Not of its schedule, of its weights at the start and of the optimizer's numbers.
    """
    options: Any = {"options": {"optim_wrapper"}, "model": NO_COST}
    plain = recipe.model_dump(mode="json", exclude=options | {"schedule": True, "optimizer": True})
    optimizer = recipe.model_dump(mode="json", include={"optimizer": {"name"}})
    return short_hash([name, plain, optimizer])


def logged_speed(run: Run, device: Device, runs_root: Path) -> float | None:
    """The median speed in the logs of runs of this recipe on this kind of device, if any."""
    speeds: list[float] = []
    trained: dict[Path, dict[str, Any]] = {}
    for path in runs_root.glob(f"*/*-{run.recipe.hash}/{record_of(Path('seed*'))}"):
        record = read_sound(path)  # a damaged one tells no speed
        if record and isinstance(record.node, TrainingNode):
            trained[path.parent / record.node.run.folder.name] = record.outcome["facts"]
    for folder, facts in trained.items():
        try:
            entries = map(
                json.loads, (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
            )
            logged = [
                entry["images_per_second"] for entry in entries if "images_per_second" in entry
            ]
        except (OSError, ValueError):
            continue
        if device.match in facts.get("device", ""):
            speeds += [speed / facts.get("processes", 1) for speed in logged]
    return statistics.median(speeds) if speeds else None


def passes_of(function: str, given: Mapping[str, Any]) -> Mapping[float, float] | None:
    """Forward passes that a measure takes for each image, by the side over the recipe's.

    None where the function does not say them by `replication.context.passes`. A number is read
    from the source: segmenters' measures then are priced without importing MMSegmentation.

    Raises:
        VitrailError: there is no such function.
    """
    count = _told_by("passes", function, given)
    return count if count is None or isinstance(count, Mapping) else {1: count}


def _told_by(decorator: str, function: str, given: Mapping[str, Any]) -> Any:
    """What the decorator of that name of a ``module:function`` says, None if it has none."""
    rule = _written_rule(decorator, function)
    if rule is None:
        return None
    try:
        return ast.literal_eval(rule)
    except ValueError:  # computed, or a function of the arguments
        measure: Any = import_function(function, "artifacts.yaml")
        parameters = inspect.signature(measure).parameters.values()
        defaults = {
            parameter.name: parameter.default
            for parameter in parameters
            if parameter.default is not parameter.empty
        }
        told = getattr(measure, decorator)
        return told({**defaults, **given}) if callable(told) else told


def _written_rule(decorator: str, function: str) -> ast.expr | None:
    """What stands in a decorator, ``passes`` or ``keeps``, of a ``module:function``, if there."""
    module, _, name = function.partition(":")
    for node in syntax_tree(file_of(module)).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            rules = (price(each, [decorator]) for each in node.decorator_list)
            return next(filter(None, rules), None)
    return None


def keeps_rows(function: str) -> bool:
    """Whether a measure of that ``module:function`` goes on where it was killed, by its imports."""
    body = syntax_tree(file_of(function.partition(":")[0])).body
    return any(isinstance(node, ast.ImportFrom) and node.module == KEPT for node in body)


def evaluation_seconds(measurement: Measurement, costs: Costs) -> Range | None:
    """Seconds of one device for a measurement, None where its measure names no passes.

    Raises:
        VitrailError: there is no such model, or it refuses its arguments.
    """
    run = measurement.run
    if run is None:
        return None
    given = _given(measurement, run, costs)
    passes = passes_of(measurement.function, given)
    if passes is None:
        return None
    flops = 0.0
    for size, count in passes.items():
        recipe = run.recipe.at_size(size)
        forward = costs.model(run, recipe).forward_flops
        flops += count * given["images"] * forward
    slowest, fastest = costs.device.sustained
    return Range(flops / fastest, BACKWARD * flops / slowest)


def kept_bytes(measurement: Measurement, costs: Costs) -> int:
    """Bytes that a measurement keeps beside the weights of its run, 0 where it says nothing.

    Raises:
        VitrailError: there is no such model, or it refuses its arguments.
    """
    run = measurement.run
    if run is None or _written_rule("keeps", measurement.function) is None:
        return 0
    given = {**_given(measurement, run, costs), "width": costs.model(run).outputs}
    told: int = _told_by("keeps", measurement.function, given)
    return told


def _given(measurement: Measurement, run: Run, costs: Costs) -> dict[str, Any]:
    """What the rules of a measure's price are given."""
    asked, info = measurement.args.get("images"), costs.judged_on(measurement, run)
    return {
        **measurement.args,
        "images": min(asked or info.val_images, info.val_images),
        "train_images": min(asked or info.train_images, info.train_images),
        "side": getattr(run.recipe.data, "image_size", None),  # of scenes each has its own
        "recipe": run.recipe,
    }


if __name__ == "__main__":
    exit_on_error(lambda: write_counted([load_catalog(scale=scale) for scale in COUNTED_SCALES]))
