"""The cost model: images to train on, over images per second.

GPU hours of a run = epochs x training images x seeds / speed. The speed is measured, from the logs
of runs of this very recipe on this kind of device, or else estimated: training FLOPs per image over
the FLOP/s that the kind of device sustains, given in ``configs/hardware.yaml`` as a range with its
source.

Training takes the FLOPs of so many forward passes as the recipe's task needs (three for a
classifier: one forward, two backward), which are two for each multiply-add that
`vitrine.measures.flops` counts.

MMSegmentation takes seconds to import, and to build each segmenter. Those of full scale are counted
once, in ``configs/segmentation/costs.csv``, which ``python -m vitrine.commands.cost`` writes; a
test counts them again.
"""

from __future__ import annotations

import csv
import json
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import PositiveFloat

from vitrine.errors import VitrineError, exit_on_error
from vitrine.plan.catalog import Catalog, Run, load_catalog
from vitrine.plan.recipe import SegmentationRecipe, Training, short_hash
from vitrine.plan.schema import Strict, parse, read_yaml
from vitrine.training.engine import builder_of

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
        """Add bound by bound."""
        return Range(self.low + other.low, self.high + other.high)

    def times(self, factor: float) -> Range:
        """Scale both bounds."""
        return Range(self.low * factor, self.high * factor)


ZERO = Range(0.0, 0.0)


@dataclass(frozen=True)
class Speed:
    """Images per second on one device, and how that is known."""

    images: Range
    source: str


@dataclass(frozen=True)
class ModelCost:
    """Parameters of a model, and FLOPs of its forward pass on one image (2 per multiply-add)."""

    parameters: int
    forward_flops: int


def load_devices(root: Path) -> dict[str, Device]:
    """Read ``configs/hardware.yaml``."""
    path = root / "configs" / "hardware.yaml"
    return {
        name: parse(Device, entry, f"{path}, device '{name}'")
        for name, entry in read_yaml(path).items()
    }


def training_images(run: Run) -> int:
    """Images that the training of one seed takes in."""
    return run.recipe.images(run.info.train_images)


class Costs:
    """What the runs of a catalogue cost on one kind of device."""

    def __init__(self, catalog: Catalog, device: Device) -> None:
        self.device = device
        self._runs_root = catalog.runs_root
        self._models = read_segmenters(catalog.root)

    def model(self, run: Run) -> ModelCost:
        """Count the parameters and the forward FLOPs of a run's model at its image size.

        Raises:
            VitrineError: there is no such model, or it refuses its arguments.
        """
        return self.model_of(run.recipe, run.info.classes)

    def model_of(self, recipe: Training, classes: int) -> ModelCost:
        """Count a recipe's model, once; errors as `model`."""
        key = model_key(recipe, classes)
        if key not in self._models:
            self._models[key] = count_model(recipe, classes)
        return self._models[key]

    def training_flops(self, run: Run) -> float:
        """FLOPs to train on one image."""
        return run.recipe.forward_passes * self.model(run).forward_flops

    def speed(self, run: Run) -> Speed:
        """How many images a second one device trains on, by the best source there is."""
        logged = logged_speed(run, self.device, self._runs_root)
        if logged is not None:
            return Speed(Range(logged, logged), "its logs")
        low, high = self.device.sustained
        flops = self.training_flops(run)
        return Speed(Range(low / flops, high / flops), "FLOPs")

    def seconds(self, run: Run, images: float) -> Range:
        """Seconds of one device for some images; trainings of zero epochs cost nothing."""
        if not images:
            return ZERO
        speed = self.speed(run).images
        return Range(images / speed.high, images / speed.low)

    def weights_bytes(self, run: Run) -> int:
        """Size of a seed's weights."""
        return BYTES_OF_FLOAT * self.model(run).parameters

    def checkpoints_bytes(self, run: Run) -> int:
        """At most what the checkpoints of a training under way take."""
        if not training_images(run):
            return 0
        copies = 3 + run.recipe.averages_weights  # weights, two moments, maybe a moving average
        return CHECKPOINTS_KEPT * copies * self.weights_bytes(run)


def model_key(recipe: Training, classes: int) -> str:
    """Return a digest of all that decides what a recipe's model costs; nothing is built for it."""
    written = recipe.model_dump(
        mode="json", include={"model": True, "options": True, "data": {"image_size": True}}
    )
    return short_hash([written, classes])


def read_segmenters(root: Path) -> dict[str, ModelCost]:
    """Read the segmenters that were counted before, by `model_key`.

    Raises:
        VitrineError: the file is damaged.
    """
    path = root / SEGMENTERS
    if not path.is_file():
        return {}
    try:
        with path.open(newline="") as file:
            return {
                row["key"]: ModelCost(int(row["parameters"]), int(row["forward_flops"]))
                for row in csv.DictReader(file)
            }
    except (KeyError, TypeError, ValueError) as error:
        raise VitrineError(
            f"cannot read {path} ({error!r}): write it anew with python -m vitrine.commands.cost"
        ) from None


def write_segmenters(catalog: Catalog) -> None:
    """Count every segmenter of a catalogue, for `read_segmenters`."""
    rows = {}
    for run in catalog.runs.values():
        if isinstance(run.recipe, SegmentationRecipe):
            key = model_key(run.recipe, run.info.classes)
            cost = asdict(count_model(run.recipe, run.info.classes))
            rows[key] = {"key": key, "recipe": f"{run.paper}/{run.name}", **cost}
    with (catalog.root / SEGMENTERS).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(next(iter(rows.values()))), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows.values())


def count_model(recipe: Training, classes: int) -> ModelCost:
    """Count a recipe's model on the meta device."""
    import torch

    from vitrine.measures import architecture, flops

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


def main() -> None:
    """Write the costs of full scale's segmenters."""
    write_segmenters(load_catalog(scale="full"))


if __name__ == "__main__":
    exit_on_error(main)
