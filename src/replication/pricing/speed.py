"""The time of a run or a measurement, in seconds of one device.

A training takes (epochs x training images) / speed. The speed is, in this order of preference: that
of the same recipe's trainings on this kind of device (in ``runs/``, then among the published
results); that which the paper states; or a computed one, namely the FLOP/s that the device sustains
(a range with its source in ``configs/hardware.yaml``) divided by the training FLOPs of an image (as
many forward passes as the task needs: three for a classifier), plus the time of loading an image,
where the file gives one. It is assumed that another schedule, or other numbers of the same
optimizer, do not change the speed.

An evaluation takes the FLOPs of the forward passes that the measure declares
(`replication.context.passes`), divided by the FLOP/s that the device sustains. Measures that
declare none have no price.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import PositiveFloat

from replication.config.paper import read_reference
from replication.config.recipe import Training, short_hash
from replication.config.schema import Strict, parse, read_mapping
from replication.plan.catalog import Catalog
from replication.pricing.counts import (
    NO_COST,
    ModelCost,
    count_model,
    images_passed,
    model_key,
    read_counted,
)
from replication.records.nodes import TrainingNode
from replication.records.records import Record, read_sound
from replication.records.specs import Measurement, Run, record_of
from replication.report.ledger import published_folder, read_published
from replication.training import CHECKPOINTS_KEPT
from vitrail.errors import VitrailError, require_known

BYTES_OF_FLOAT = 4
ASSUMED_DEVICE = {"cpu": "cpu", "cuda": "a100"}  # the papers trained on A100s


class Device(Strict):
    """One kind of device in ``configs/hardware.yaml``; `peak` and `sustained` are in FLOP/s.

    `loading` is the seconds that the training process needs to load and augment an image, by task.
    """

    title: str
    match: str
    peak: PositiveFloat | None = None
    sustained: tuple[PositiveFloat, PositiveFloat]
    loading: dict[Literal["classification", "segmentation", "self_supervision"], PositiveFloat] = {}
    source: str


@dataclass(frozen=True)
class Range:
    """A quantity between two bounds, which are equal if it is measured."""

    low: float
    high: float

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def times(self, factor: float) -> Range:
        """Return the range with both bounds multiplied by `factor`."""
        return Range(self.low * factor, self.high * factor)

    def takes(self, amount: float) -> Range:
        """Return the time for an amount at this speed; the lower bound is at the highest speed."""
        return Range(amount / self.high, amount / self.low)

    @property
    def hours(self) -> list[float]:
        """Return both bounds, which are seconds, in hours."""
        return [self.low / 3600, self.high / 3600]


ZERO = Range(0.0, 0.0)


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
    another = (
        " (for another GPU, add an entry like a100's to configs/hardware.yaml: peak from the data "
        "sheet, sustained 2 to 6 % of it)"
    )
    require_known("device", name, devices, another)
    return name, Costs(catalog, devices[name])


def training_images(run: Run) -> int:
    """Return the number of images that the training of one seed processes."""
    return run.recipe.images(run.dataset.train_images)


class Costs:
    """The costs of a catalogue's nodes on one kind of device.

    Methods that need a model raise VitrailError if there is no such model, or it refuses its
    arguments.
    """

    def __init__(self, catalog: Catalog, device: Device) -> None:
        self.device = device
        self.sustained = Range(*device.sustained)
        self._catalog = catalog
        self._models = read_counted(catalog.root)

    def model(self, run: Run, recipe: Training | None = None) -> ModelCost:
        """Return the cost of a run's model, or of the model of `recipe` with the run's classes."""
        recipe, classes = recipe or run.recipe, run.dataset.classes
        key = model_key(recipe, classes)
        if key not in self._models:
            self._models[key] = count_model(recipe, classes)
        return self._models[key]

    def training_flops(self, run: Run) -> float:
        """Return the FLOPs of training on one image."""
        return run.recipe.forward_passes * self.model(run).forward_flops

    def speed(self, run: Run) -> tuple[Range, str]:
        """Return the images per second that one device trains on, and the source of the number."""
        if (measured := self._measured.get(_speed_key(run.recipe))) is not None:
            return Range(measured, measured), "measured"
        if printed := self._printed(run):
            return printed.takes(training_images(run)), "the paper"
        loading = self.device.loading.get(cast(Any, run.recipe.task), 0.0)
        seconds = self.sustained.takes(self.training_flops(run)) + Range(loading, loading)
        return seconds.takes(1), "FLOPs"

    def seconds(self, run: Run) -> Range:
        """Return the device seconds of training one seed; zero epochs cost nothing."""
        images = training_images(run)
        return self.speed(run)[0].takes(images) if images else ZERO

    def evaluation_seconds(self, measurement: Measurement) -> Range | None:
        """Return the device seconds of a measurement; None if its measure declares no passes."""
        run, passed = measurement.run, images_passed(measurement)
        if run is None or passed is None:
            return None
        flops = (
            images * self.model(run, run.recipe.at_size(size)).forward_flops
            for size, images in passed.items()
        )
        return self.sustained.takes(sum(flops))

    @cached_property
    def _measured(self) -> dict[str, float]:
        """Return the images per second of trainings on such a device, by `_speed_key`.

        Trainings made here replace published ones.
        """
        published: Iterable[Record] = ()
        with suppress(VitrailError):  # damaged records are ignored
            published = read_published(published_folder(self._catalog)).values()
        paths = self._catalog.runs_root.glob(f"*/*/{record_of(Path('seed*'))}")
        own = filter(None, map(read_sound, paths))
        return {**self._speeds(published), **self._speeds(own)}

    def _speeds(self, records: Iterable[Record]) -> dict[str, float]:
        """Return the median speed of one such device in records of trainings, by `_speed_key`."""
        speeds: dict[str, list[float]] = {}
        for record in records:
            if isinstance(record.node, TrainingNode):
                facts = record.outcome["facts"]
                # A training of zero epochs has the speed 0.
                speed = facts.get("images_per_second", 0) / facts["processes"]
                if speed and self.device.match in facts["device"]:
                    speeds.setdefault(_speed_key(record.node.run.recipe), []).append(speed)
        return {key: statistics.median(found) for key, found in speeds.items()}

    def _printed(self, run: Run) -> Range | None:
        """Return the seconds that the paper states for an A100, scaled by the ratio of the peaks.

        They hold for the paper's own recipe only, so at other scales nothing is known. None if the
        paper states nothing, or if this device has no peak.

        Raises:
            VitrailError: ``paper.yaml`` names a row that the reference file does not have.
        """
        paper = self._catalog.paper(run.paper)
        if self.device.peak is None or not paper.as_printed(run.name):
            return None
        for cost in paper.info.costs:
            if any(fnmatchcase(run.name, pattern) for pattern in cost.recipes):
                file = paper.folder / "reference" / f"{cost.reference}.csv"
                cells = read_reference(file)
                for row in cost.rows:
                    require_known(f"{file}: row", row, [known for known, _ in cells])
                hours = [float(cells[row, cost.column].value) / cost.trainings for row in cost.rows]
                a100 = load_devices(self._catalog.root)["a100"].peak or self.device.peak
                return Range(min(hours), max(hours)).times(3600 * a100 / self.device.peak)
        return None

    def weights_bytes(self, run: Run) -> int:
        """Return the size of a seed's weights in bytes."""
        return BYTES_OF_FLOAT * self.model(run).parameters

    def checkpoints_bytes(self, run: Run) -> int:
        """Return the upper limit of the bytes of a training's checkpoints."""
        copies = 3 + run.recipe.averages_weights  # weights, two moments, maybe a moving average
        return CHECKPOINTS_KEPT * copies * self.weights_bytes(run) if training_images(run) else 0


def _speed_key(recipe: Training) -> str:
    """Return a digest of what decides how fast a recipe trains on one device.

    It leaves out the schedule, the part of the images, the initial weights, and the optimizer's
    numbers.
    """
    left_out: Any = {"model": NO_COST, "options": {"optim_wrapper"}, "data": {"part"}}
    left_out |= {"schedule": True, "optimizer": True}
    optimizer: Any = {"optimizer": {"name"}}
    parts = ({"exclude": left_out}, {"include": optimizer})
    return short_hash([recipe.model_dump(mode="json", **each) for each in parts])
