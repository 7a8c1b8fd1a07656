"""The recipe of a backbone that learns by DINOv2."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from replication.config.recipe import Batch, Data, Model, TimmTraining
from replication.config.schema import Strict

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
    decay_layer_scale: bool = Field(
        False, description="weight decay of the layer scales of octic blocks; others have none"
    )
    clip_grad: PositiveFloat = Field(description="maximum gradient norm, of backbone and of heads")


class StepSchedule(Strict):
    """Steps: of all, of the linear warm-up before the cosine, and until the last layer moves.

    With none at all, weights are used as they come.
    """

    steps: NonNegativeInt
    planned_steps: PositiveInt | None = Field(
        None, description="of the schedules, where the training stops after `steps` of them"
    )
    warmup_steps: NonNegativeInt
    min_lr: float = Field(ge=0)
    freeze_last_layer_steps: NonNegativeInt
    save_teacher_steps: PositiveInt = Field(description="between the teachers that are kept")

    @model_validator(mode="after")
    def _warmup_fits(self) -> StepSchedule:
        name, planned = "planned_steps", self.planned_steps
        if planned is None:
            name, planned = "steps", self.steps
        if planned < self.steps:
            raise ValueError(f"planned_steps must not be below steps ({self.steps})")
        if self.steps and self.warmup_steps >= planned:
            raise ValueError(f"warmup_steps must be below {name} ({planned})")
        return self


STEP_COUNTS = (
    *("steps", "planned_steps", "warmup_steps"),
    *("freeze_last_layer_steps", "save_teacher_steps"),
)


class SelfSupervisionRecipe(TimmTraining):
    """Everything that decides a training by DINOv2 but the seed.

    A micro-batch is what one GPU takes: masks, the KoLeo loss and stochastic depth are drawn for
    each.
    """

    engine: ClassVar[str] = "replication.papers.octic.dinov2.training"
    builder: ClassVar[str] = "replication.papers.octic.dinov2.network"
    hub_task: ClassVar[str] = "image-feature-extraction"

    score: ClassVar[tuple[str, str]] = (
        "replication.papers.octic.dinov2.image_probes:knn",
        "top1/20",
    )

    task: Literal["self_supervision"] = "self_supervision"
    model: Model
    data: Data
    crops: Crops
    masks: Masks
    head: ProjectionHead
    teacher: Teacher
    student_temperature: PositiveFloat = 0.1
    koleo_weight: float = Field(ge=0)
    drop_path: float = Field(ge=0, lt=1, description="chance that an image skips a branch")
    optimizer: LayerwiseAdamW
    schedule: StepSchedule
    batch: Batch
    precision: Literal["fp32", "bf16"] = "fp32"
    grad_checkpointing: bool = False
    compile: bool = False

    def longer(self, factor: int) -> Self:
        """As `Training.longer`; every number of steps is stretched."""
        schedule = self.schedule
        counts = {name: getattr(schedule, name) for name in STEP_COUNTS}
        stretched = {name: factor * count for name, count in counts.items() if count is not None}
        teacher = {"temperature_steps": factor * self.teacher.temperature_steps}
        return self._with({"schedule": stretched, "teacher": teacher})

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
