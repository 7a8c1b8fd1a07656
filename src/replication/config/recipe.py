"""Recipes: everything that decides a training's outcome except the seed.

The hash of a recipe's canonical JSON names the run's folder and protects the checkpoints from being
used by another recipe. Fields with their default values are left out of the hash, so that a new
field does not rename old runs: **a default, once released, must never change**. This module has
what the kinds of training share. Each kind has a module of its own with its fields and with all
that planning and the commands need to know of it: see `replication.config.recipe_types`.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from replication.config.functions import HUBS
from replication.config.schema import Delta, Placed, Strict, merge
from replication.epoch_length import steps_per_epoch
from vitrail.errors import VitrailError

Fraction = float


class Training(Strict, ABC):
    """Base of the recipes of all kinds of training.

    A kind is named by its field `task`, and declares fields `model`, `data` and `batch` of its own.
    """

    engine: ClassVar[str]  # the module that trains it
    builder: ClassVar[str]  # the module that builds its model
    hub_task: ClassVar[str]  # the hubs' name for the task of its models
    library: ClassVar[str]  # the package that opens its models
    usage: ClassVar[str]  # Markdown of a model card: how to open the model at {source}
    rate: ClassVar[tuple[str, ...]] = ("optimizer", "lr")  # the keys of its peak learning rate
    score: ClassVar[tuple[str, str]]  # the measure by which learning rates are chosen, and its key

    if TYPE_CHECKING:  # each kind declares them itself, in the order in which files have them
        task: str
        model: Any
        data: Any
        batch: Any

    @abstractmethod
    def steps(self, train_images: int) -> int:
        """Return the number of optimiser steps of a training on `train_images` images."""

    @abstractmethod
    def images(self, train_images: int) -> int:
        """Return the number of images that a training processes, with all repetitions."""

    @property
    def averages_weights(self) -> bool:
        """Tell whether a moving average of the weights is kept beside them."""
        return False

    @property
    def forward_passes(self) -> float:
        """Return the cost of a training image in forward passes; a backward pass counts as two."""
        return 3.0

    @property
    def code(self) -> tuple[str, ...]:
        """Return the code that trains it, as ``module:name``; model and dataset have their own."""
        return (f"{self.engine}:train",)

    def names_elsewhere(self) -> Iterable[str]:
        """Return names of models and registered types in the files that the recipe includes."""
        return ()

    def shown(self) -> dict[str, Any]:
        """Return the recipe for display, as plain data; files appear by length and digest."""
        return self.model_dump(mode="json")

    def at_size(self, factor: float) -> Self:
        """Return the recipe with `factor` times the image side; itself if it gives no side."""
        return self

    def with_rate(self, rate: float) -> Self:
        """Return the recipe with another peak learning rate."""
        return self._with(placed_at(self.rate, rate))

    def on_part(self, part: Part) -> Self:
        """Return the recipe on a part of its dataset."""
        return self._with({"data": {"part": part}})

    @abstractmethod
    def longer(self, factor: int) -> Self:
        """Return the recipe with `factor` times the steps, and its schedule stretched to them."""

    def _with(self, changes: Mapping[str, Any]) -> Self:
        return self.model_validate(merge(self.model_dump(exclude_unset=True), changes))

    @classmethod
    def derived(cls, written: Delta, root: Path) -> Placed:
        """Return values that follow from the `written` values of a recipe, with their origin."""
        return Placed({}, {})

    def canonical_json(self) -> str:
        """Return the canonical JSON text of this recipe, without default values."""
        return canonical_json(self.model_dump(mode="json", exclude_defaults=True))

    @property
    def hash(self) -> str:
        """Return the first eight hex digits of the SHA-256 of the canonical JSON."""
        return short_hash(self.model_dump(mode="json", exclude_defaults=True))


class Model(Strict):
    """A model of timm's registry, by name with arguments, or a model of a hub.

    `name` may have a pretrained tag (``vit_small_patch16_224.augreg_in21k_ft_in1k``), or tell where
    timm finds the model (``hf-hub:<user>/<name>@<revision>``, ``local-dir:<folder>``). `pretrained`
    loads the weights of that name, or other weights of ``configs/weights.yaml``. `weights_from` is
    the name of a recipe in the files; it is resolved to the folder of that recipe's runs, so that
    the other recipe's hash enters this one's.
    """

    name: str
    args: dict[str, Any] = {}
    pretrained: bool | str = Field(
        False, description="load published weights: those of the model's name, or of this one"
    )
    weights_from: str | None = Field(
        None, description="the paper's run whose weights of the same seed training starts from"
    )
    drop_path_rule: Literal["linear", "constant"] = Field(
        "linear",
        description="args.drop_path_rate is the last block's, as in timm, or every block's",
    )

    @model_validator(mode="after")
    def _has_one_origin(self) -> Model:
        if self.pretrained and self.weights_from:
            raise ValueError("pretrained and weights_from are two origins of weights: keep one")
        return self

    @property
    def published(self) -> str | None:
        """Return the name of the published weights that training starts from, None for none.

        None, too, for the weights of a hub's model, which timm downloads itself.
        """
        if isinstance(self.pretrained, str):
            return self.pretrained
        return self.name if self.pretrained and not self.name.startswith(HUBS) else None


Part = Literal["all", "tuning"]
PART: Any = Field(
    "all",
    description="tuning: every fifth training image is held out and judged on, the others train, "
    "and the test images are not opened",
)


class Data(Strict):
    """The dataset, and the transforms that turn an image into a tensor at evaluation."""

    dataset: str
    version: PositiveInt = 1
    part: Part = PART
    image_size: PositiveInt = 224
    normalization: Literal["dataset", "inception", "none"] = Field(
        "dataset",
        description="the dataset's own mean and std, or 0.5 and 0.5 for each channel; none leaves "
        "pixels in [0, 1]",
    )
    interpolation: Literal["bicubic", "bilinear", "nearest"] = "bicubic"
    crop_pct: float = Field(0.875, gt=0, le=1, description="evaluation: resize to size / crop_pct")
    crop_mode: Literal["center", "squash"] = Field(
        "center", description="evaluation: resize the short side, or both and lose the proportions"
    )
    shuffle_labels: bool = Field(
        False, description="a control: training images get each other's labels, drawn by the seed"
    )


class Augmentation(Strict):
    """Transforms in training, with timm's names (`timm.data.create_transform`, `Mixup`)."""

    crop: Literal["random_resized", "center", "random"] = Field(
        "random_resized",
        description="'center' augments the evaluation view, 'random' crops it at its own size",
    )
    crop_padding: int = Field(
        4, ge=0, description="crop 'random': so many black pixels on each side"
    )
    crop_step: PositiveInt = Field(1, description="crop 'random': pixels from a place to the next")
    crop_count: PositiveInt = Field(1, description="crop 'random': so many, each of the one before")
    resize_last: bool = Field(
        False,
        description="auto_augment, then crop 'random', then flips act on the stored image, which "
        "is resized after them",
    )
    scale: tuple[Fraction, Fraction] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    hflip: float = Field(0.5, ge=0, le=1)
    vflip: float = Field(0.0, ge=0, le=1)
    color_jitter: float = Field(0.0, ge=0)
    auto_augment: str | None = None
    auto_augment_spatial: bool = Field(
        True, description="RandAugment may rotate, shear and translate too"
    )
    erase_prob: float = Field(0.0, ge=0, le=1)
    erase_mode: Literal["pixel", "rand", "const"] = "pixel"
    erase_count: PositiveInt = 1
    erase_scale: tuple[Fraction, Fraction] = Field(
        (0.02, 1 / 3), description="share of the image that is erased, from and to"
    )
    circular_shift: int = Field(0, ge=0, description="roll by up to so many pixels on each axis")
    mixup: float = Field(0.0, ge=0, description="alpha of the Beta distribution; 0 is off")
    cutmix: float = Field(0.0, ge=0, description="alpha of the Beta distribution; 0 is off")
    mix_prob: float = Field(1.0, ge=0, le=1)
    mix_switch_prob: float = Field(0.5, ge=0, le=1)
    repeats: PositiveInt = Field(
        1,
        description="repeated augmentation: views of an image in a batch; epochs keep their size",
    )

    @model_validator(mode="after")
    def _has_operations_to_restrict(self) -> Augmentation:
        policy = self.auto_augment or ""
        if not self.auto_augment_spatial and (not policy.startswith("rand-") or "-t" in policy):
            raise ValueError(
                "auto_augment_spatial: false needs an unweighted auto_augment: rand-...; "
                "set that too"
            )
        return self


class Optimizer(Strict):
    """Arguments of `timm.optim.create_optimizer_v2`; `lr` is the peak rate for the whole batch."""

    name: str = "adamw"
    lr: PositiveFloat
    weight_decay: float = Field(0.05, ge=0)
    betas: tuple[float, float] | None = None
    eps: PositiveFloat | None = None
    momentum: float = 0.9
    layer_decay: float | None = None
    group_lr: dict[str, PositiveFloat] = Field(
        {}, description="peak rates by patterns of parameters' names; the last that matches counts"
    )
    clip_grad: PositiveFloat | None = Field(None, description="maximum global gradient norm")
    trust_ratio: Literal["representation", "weight"] = Field(
        "representation",
        description="LAMB's: one for each irreducible representation, or for each weight, which "
        "in equivariant layers stacks several",
    )

    @model_validator(mode="after")
    def _lamb_alone_has_trust_ratios(self) -> Optimizer:
        if self.trust_ratio != "representation" and self.name != "lamb":
            raise ValueError(
                f"trust_ratio is of the optimizer lamb, and name is '{self.name}': leave it out"
            )
        return self


class Schedule(Strict):
    """The learning rate over epochs, updated at every step; with 0 epochs nothing is trained."""

    epochs: int = Field(ge=0)
    name: Literal["cosine", "constant"] = "cosine"
    warmup_epochs: NonNegativeInt | NonNegativeFloat = 0
    warmup_lr: float = Field(1e-6, ge=0)
    min_lr: float = Field(0.0, ge=0)
    steps: PositiveInt | None = Field(
        None, description="the training stops after so many steps, within its epochs"
    )

    @model_validator(mode="after")
    def _warmup_fits(self) -> Schedule:
        if self.epochs and self.warmup_epochs >= self.epochs:
            raise ValueError(f"warmup_epochs must be below epochs ({self.epochs})")
        return self


class Whole(Strict):
    """`size` images make one optimiser step, shared equally by the devices."""

    size: PositiveInt

    @property
    def parts(self) -> int:
        """Return the number of equal parts of a step; every device takes equally many."""
        return self.size

    def share(self, devices: int) -> int:
        """Return how many parts of a step each of `devices` takes.

        Raises VitrailError if they cannot share the parts equally.
        """
        if self.parts % devices:
            working = [str(n) for n in range(1, self.parts + 1) if self.parts % n == 0]
            raise VitrailError(
                f"{self} makes {self.parts} per step, which {devices} devices cannot share "
                f"equally: use {' or '.join(working)} devices"
            )
        return self.parts // devices

    def __str__(self) -> str:
        """Return the fields that decide the parts, for errors."""
        return f"batch.size {self.size}"


class Batch(Whole):
    """`size` images make one optimiser step, in micro-batches of `micro` images.

    Random draws are made for each micro-batch (one draw of Mixup, dropout likewise), so `micro`
    belongs to the recipe: the number of devices only decides how many micro-batches run at once.
    """

    micro: PositiveInt
    drop_last: bool = Field(
        True, description="leave out an epoch's last batch where it is short; else it is a step too"
    )

    @model_validator(mode="after")
    def _divides(self) -> Batch:
        if self.size % self.micro:
            raise ValueError(f"size must be a multiple of micro ({self.micro})")
        return self

    @property
    def parts(self) -> int:
        """Return the number of micro-batches of a step."""
        return self.size // self.micro

    def __str__(self) -> str:
        """Return the fields that decide the parts, as `Whole`."""
        return f"batch.size {self.size} in micro-batches of {self.micro}"


OF_TIMM = """```python
import vitrail.models, timm

model = timm.create_model("{source}", pretrained=True)
```"""


class TimmTraining(Training):
    """Base of the trainings of timm's models on images."""

    builder: ClassVar[str] = "replication.training.model_factory"
    library: ClassVar[str] = "timm"
    usage: ClassVar[str] = OF_TIMM

    if TYPE_CHECKING:
        model: Model
        data: Data
        batch: Batch

    def at_size(self, factor: float) -> Self:
        """Return the recipe as `Training.at_size`; the side is rounded to a pixel."""
        if factor == 1:
            return self
        side = round(factor * self.data.image_size)
        data = self.data.model_copy(update={"image_size": side})
        model = self.model.model_copy(update={"args": {**self.model.args, "img_size": side}})
        return self.model_copy(update={"data": data, "model": model})


class EpochTraining(TimmTraining):
    """A training over epochs of a dataset, by timm's optimisers and schedules."""

    score: ClassVar[tuple[str, str]] = ("replication.measures.accuracy:accuracy", "top1")

    task: str
    model: Model
    data: Data
    augmentation: Augmentation = Augmentation()
    optimizer: Optimizer
    schedule: Schedule
    batch: Batch
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"

    def longer(self, factor: int) -> Self:
        """Return the recipe with `factor` times the epochs, warm-up included."""
        schedule = self.schedule
        stretched = {name: factor * getattr(schedule, name) for name in ("epochs", "warmup_epochs")}
        return self._with({"schedule": stretched})

    def steps(self, train_images: int) -> int:
        """Return the number of optimiser steps; `batch.drop_last` leaves out short batches."""
        batch = self.batch
        steps = self.schedule.epochs * steps_per_epoch(train_images, batch.size, batch.drop_last)
        return steps if self.schedule.steps is None else min(self.schedule.steps, steps)

    def images(self, train_images: int) -> int:
        """Return epochs x images, or fewer if the training stops earlier."""
        images = self.schedule.epochs * train_images
        stop = self.schedule.steps
        return images if stop is None else min(images, stop * self.batch.size)


def placed_at(path: Sequence[str], value: Any) -> dict[str, Any]:
    """Return nested dictionaries in which `value` stands under the keys of `path`."""
    for key in reversed(path):
        value = {key: value}
    nested: dict[str, Any] = value
    return nested


def canonical_json(value: Any) -> str:
    """Return the canonical JSON text of plain data: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def short_hash(value: Any) -> str:
    """Return the first eight hex digits of the SHA-256 of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:8]
