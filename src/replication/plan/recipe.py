"""Recipes: everything that decides a training's outcome but the seed.

The hash of a recipe's canonical JSON names the run folder and guards the checkpoints. Fields left
at their defaults stay out of it, so that a new field does not rename old runs: **a default, once
released, must never change**. Each task has its kind of recipe, and an engine that trains it.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from replication.plan.schema import Strict
from vitrail.naming import HUBS

Fraction = float
Task = Literal["classification", "segmentation", "self_supervision"]


class Training(Strict, ABC):
    """What the recipes of all tasks have in common; each also has `model`, `data` and `batch`."""

    engine: ClassVar[str] = ""  # the module that trains it
    builder: ClassVar[str] = ""  # the module that builds its model

    @abstractmethod
    def steps(self, train_images: int) -> int:
        """Optimiser steps of a training on so many images."""

    @abstractmethod
    def images(self, train_images: int) -> int:
        """Images that a training takes in, those that it sees again included."""

    @property
    def averages_weights(self) -> bool:
        """Whether a moving average of the weights is kept beside them."""
        return False

    @property
    def forward_passes(self) -> float:
        """What a training image costs, in forward passes of one: a backward pass counts two."""
        return 3.0

    def canonical_json(self) -> str:
        """Return the one JSON text of this recipe, without defaults."""
        return canonical_json(self.model_dump(mode="json", exclude_defaults=True))

    @property
    def hash(self) -> str:
        """First eight hex digits of the SHA-256 of the canonical JSON."""
        return short_hash(self.model_dump(mode="json", exclude_defaults=True))


class Model(Strict):
    """A timm registry name with its arguments, or a model of a hub.

    `name` may carry a pretrained tag (``vit_small_patch16_224.augreg_in21k_ft_in1k``), or say where
    timm finds the model (``hf-hub:<user>/<name>@<revision>``, ``local-dir:<folder>``). `pretrained`
    loads the weights of that name, or others of ``configs/weights.yaml``. `weights_from` is written
    as the name of a recipe and resolved to its run's folder, whose hash then counts in this
    recipe's own.
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
        """Name of the published weights that training starts from; timm keeps those of a hub."""
        if isinstance(self.pretrained, str):
            return self.pretrained
        return self.name if self.pretrained and not self.name.startswith(HUBS) else None


class Data(Strict):
    """The dataset and what turns one of its images into a tensor at evaluation."""

    dataset: str
    version: PositiveInt = 1
    image_size: PositiveInt = 224
    normalization: Literal["dataset", "inception"] = Field(
        "dataset", description="the dataset's own mean and std, or 0.5 and 0.5 for each channel"
    )
    interpolation: Literal["bicubic", "bilinear", "nearest"] = "bicubic"
    crop_pct: float = Field(0.875, gt=0, le=1, description="evaluation: resize to size / crop_pct")
    crop_mode: Literal["center", "squash"] = Field(
        "center", description="evaluation: resize the short side, or both and lose the proportions"
    )


class Augmentation(Strict):
    """Training-time transforms, in timm's vocabulary (`timm.data.create_transform`, `Mixup`)."""

    crop: Literal["random_resized", "center", "random"] = Field(
        "random_resized",
        description="'center' augments the evaluation view, 'random' crops it at its own size",
    )
    crop_padding: int = Field(
        4, ge=0, description="crop 'random': so many black pixels on each side"
    )
    crop_step: PositiveInt = Field(1, description="crop 'random': pixels from a place to the next")
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
    """Arguments of `timm.optim.create_optimizer_v2`; `lr` is the peak, for the global batch."""

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


class Schedule(Strict):
    """Learning rate over epochs, updated every step. Zero epochs: weights are used as they come."""

    epochs: int = Field(ge=0)
    name: Literal["cosine", "constant"] = "cosine"
    warmup_epochs: NonNegativeInt | NonNegativeFloat = 0
    warmup_lr: float = Field(1e-6, ge=0)
    min_lr: float = Field(0.0, ge=0)

    @model_validator(mode="after")
    def _warmup_fits(self) -> Schedule:
        if self.epochs and self.warmup_epochs >= self.epochs:
            raise ValueError(f"warmup_epochs must be below epochs ({self.epochs})")
        return self


class Batch(Strict):
    """`size` images make one optimiser step, in micro-batches of `micro` images.

    The micro-batch is the unit of randomness (Mixup draws once for each, dropout likewise), so it
    belongs to the recipe: devices then only decide how many of them run at a time.
    """

    size: PositiveInt
    micro: PositiveInt
    drop_last: bool = Field(
        True, description="leave out an epoch's last batch where it is short; else it is a step too"
    )

    @model_validator(mode="after")
    def _divides(self) -> Batch:
        if self.size % self.micro:
            raise ValueError(f"size must be a multiple of micro ({self.micro})")
        return self


class Recipe(Training):
    """Everything that decides the training of a classifier but the seed."""

    engine: ClassVar[str] = "replication.engine.loop"
    builder: ClassVar[str] = "vitrail.factory"

    task: Literal["classification"] = "classification"
    model: Model
    data: Data
    augmentation: Augmentation = Augmentation()
    loss: Literal["cross_entropy", "binary_cross_entropy"] = "cross_entropy"
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    bce_target_threshold: float | None = Field(
        None, ge=0, lt=1, description="binary cross-entropy: soft targets above this are 1, else 0"
    )
    optimizer: Optimizer
    schedule: Schedule
    batch: Batch
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    ema_decay: float | None = Field(None, gt=0, lt=1, description="weights average that is saved")
    grad_checkpointing: bool = False
    compile: bool = False

    @model_validator(mode="after")
    def _threshold_has_its_loss(self) -> Recipe:
        if self.bce_target_threshold is not None and self.loss != "binary_cross_entropy":
            raise ValueError("bce_target_threshold needs loss: binary_cross_entropy; set that too")
        if self.bce_target_threshold == 0 and self.label_smoothing:
            raise ValueError(
                "label_smoothing lifts every class above bce_target_threshold 0; drop one"
            )
        return self

    def steps(self, train_images: int) -> int:
        """Optimiser steps of a training; `batch.drop_last` says if those of short batches count."""
        short = 0 if self.batch.drop_last else self.batch.size - 1
        return self.schedule.epochs * ((train_images + short) // self.batch.size)

    def images(self, train_images: int) -> int:
        """Epochs x images."""
        return self.schedule.epochs * train_images

    @property
    def averages_weights(self) -> bool:
        """Whether a moving average of the weights is kept beside them."""
        return self.ema_decay is not None


class Segmenter(Strict):
    """An MMSegmentation configuration, and what is laid over its `model`.

    `name` is a file of ``configs/segmentation`` without its suffix, or one of MMSegmentation's own
    as ``mmseg::swin/<file>``.
    """

    weights_from: ClassVar[None] = None  # it starts from published weights, never from a run's

    name: str
    args: dict[str, Any] = {}
    pretrained: str | None = Field(
        None,
        description="published weights of the backbone, or of the whole segmenter where "
        "schedule.steps is 0: a timm name, or a checkpoint's URL",
    )
    sha256: str = Field("", description="digest of our file and those of ours that it inherits")

    @property
    def published(self) -> str | None:
        """As `Model.published`."""
        return self.pretrained


class Scenes(Strict):
    """The dataset; how its images become tensors is the configuration's."""

    dataset: str
    version: PositiveInt = 1


class Steps(Strict):
    """Optimiser steps; the configuration's learning rate schedule is stretched to them.

    Zero steps: weights are used as they come, and published ones are those of the whole segmenter.
    """

    steps: int = Field(ge=0)


class Whole(Strict):
    """`size` images make one optimiser step, in equal shares of the devices."""

    size: PositiveInt


class SegmentationRecipe(Training):
    """Everything that decides the training of a segmenter but the seed."""

    engine: ClassVar[str] = "replication.engine.segmentation.training"
    builder: ClassVar[str] = "replication.engine.segmentation.config"

    task: Literal["segmentation"] = "segmentation"
    model: Segmenter
    data: Scenes
    options: dict[str, Any] = Field({}, description="laid over the whole configuration")
    schedule: Steps
    batch: Whole

    def steps(self, train_images: int) -> int:
        """As the recipe says, however many images there are."""
        return self.schedule.steps

    def images(self, train_images: int) -> int:
        """Steps x batch."""
        return self.schedule.steps * self.batch.size


Span = tuple[float, float]


class Crops(Strict):
    """DINOv2's multi-crop; global crops have the size that images have at evaluation.

    Of three probabilities of blur, the first two are those of the global crops.
    """

    resize: PositiveInt | None = Field(
        None, description="side in pixels to which Lanczos' filter squashes an image first"
    )
    local_count: NonNegativeInt
    local_size: PositiveInt
    global_scale: Span = Field(description="share of the image's area, from and to")
    local_scale: Span
    ratio: Span = (3 / 4, 4 / 3)
    hflip: float = Field(ge=0, le=1)
    vflip: float = Field(0.0, ge=0, le=1)
    quarter_turns: bool = False
    color_jitter: tuple[float, float, float, float] = Field(
        description="of brightness, contrast, saturation and hue"
    )
    color_jitter_prob: float = Field(ge=0, le=1)
    gray_prob: float = Field(ge=0, le=1)
    blur_prob: tuple[float, float, float]
    blur_kernel: PositiveInt = 9
    blur_sigma: Span = (0.1, 2.0)
    solarize_prob: float = Field(ge=0, le=1, description="of the second global crop")


class Masks(Strict):
    """iBOT's masks: how many global crops have one, and the share of patches, from and to."""

    probability: float = Field(ge=0, le=1)
    ratio: Span


class ProjectionHead(Strict):
    """DINO's head; a `separate` one is trained for patches."""

    hidden: PositiveInt
    bottleneck: PositiveInt
    prototypes: PositiveInt
    separate: bool = False


class Teacher(Strict):
    """The moving average of the student, and the targets that it gives."""

    momentum: Span = Field(description="of the moving average, from and to, by a cosine")
    temperature: Span = Field(description="of the targets, from and to, linear")
    temperature_steps: PositiveInt
    centering: Literal["softmax", "sinkhorn"]
    center_momentum: float = Field(0.9, ge=0, lt=1)


class LayerwiseAdamW(Strict):
    """AdamW with layer decay; `lr` is the peak, for the global batch."""

    lr: PositiveFloat
    betas: Span = (0.9, 0.999)
    weight_decay: Span = Field(description="from and to, by a cosine")
    layer_decay: float = Field(gt=0, le=1)
    patch_embed_scale: PositiveFloat = Field(description="of the patch embedding's rate")
    clip_grad: PositiveFloat = Field(description="maximum gradient norm, of backbone and of heads")


class StepSchedule(Strict):
    """Steps: of all, of the linear warm-up before the cosine, and until the last layer moves."""

    steps: PositiveInt
    warmup_steps: NonNegativeInt
    min_lr: float = Field(ge=0)
    freeze_last_layer_steps: NonNegativeInt
    save_teacher_steps: PositiveInt = Field(description="between the teachers that are kept")

    @model_validator(mode="after")
    def _warmup_fits(self) -> StepSchedule:
        if self.warmup_steps >= self.steps:
            raise ValueError(f"warmup_steps must be below steps ({self.steps})")
        return self


class SelfSupervisionRecipe(Training):
    """Everything that decides a training by DINOv2 but the seed.

    A micro-batch is what one GPU takes: masks, the KoLeo loss and stochastic depth are drawn for
    each.
    """

    engine: ClassVar[str] = "replication.engine.dinov2"
    builder: ClassVar[str] = "vitrail.dinov2.network"

    task: Literal["self_supervision"] = "self_supervision"
    model: Model
    data: Data
    crops: Crops
    masks: Masks
    head: ProjectionHead
    teacher: Teacher
    student_temperature: PositiveFloat = 0.1
    koleo_weight: float = Field(ge=0)
    drop_path: float = Field(ge=0, lt=1, description="share of the batch that a branch leaves out")
    optimizer: LayerwiseAdamW
    schedule: StepSchedule
    batch: Batch
    precision: Literal["fp32", "bf16"] = "fp32"
    grad_checkpointing: bool = False

    def steps(self, train_images: int) -> int:
        """As the recipe says, however many images there are."""
        return self.schedule.steps

    def images(self, train_images: int) -> int:
        """Steps x batch."""
        return self.schedule.steps * self.batch.size

    @property
    def averages_weights(self) -> bool:
        """The teacher is an average."""
        return True

    @property
    def forward_passes(self) -> float:
        """Global crops pass teacher and student, local ones the student, by their area."""
        area = (self.crops.local_size / self.data.image_size) ** 2
        return 2 + 3 * (1 - self.drop_path) * (2 + self.crops.local_count * area)


AnyRecipe = Recipe | SegmentationRecipe | SelfSupervisionRecipe
RECIPES: dict[str, type[AnyRecipe]] = {
    "classification": Recipe,
    "segmentation": SegmentationRecipe,
    "self_supervision": SelfSupervisionRecipe,
}


def canonical_json(value: Any) -> str:
    """Return the one JSON text of plain data: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def short_hash(value: Any) -> str:
    """First eight hex digits of the SHA-256 of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:8]
