"""The recipe of a backbone that is trained by DINOv2."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from replication.config.recipe import Batch, Data, Model, TimmTraining
from replication.config.schema import Strict

Span = tuple[float, float]


class Crops(Strict):
    """DINOv2's multi-crop; global crops have the image size of evaluation.

    `blur_prob` has the probabilities of the first global, the second global and the local crops.
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
    """iBOT's masks: the share of global crops with a mask, and the masked share of their patches.

    `ratio` is the range of the masked share, from and to.
    """

    probability: float = Field(ge=0, le=1)
    ratio: Span


class ProjectionHead(Strict):
    """DINO's head; with `separate`, a second head is trained for patches."""

    hidden: PositiveInt
    bottleneck: PositiveInt
    prototypes: PositiveInt
    separate: bool = False


class Teacher(Strict):
    """The teacher: the moving average of the student, and the targets that it gives."""

    momentum: Span = Field(description="of the moving average, from and to, by a cosine")
    temperature: Span = Field(description="of the targets, from and to, linear")
    temperature_steps: PositiveInt
    centering: Literal["softmax", "sinkhorn"]
    center_momentum: float = Field(0.9, ge=0, lt=1)


class LayerwiseAdamW(Strict):
    """AdamW with layer decay; `lr` is the peak rate for the whole batch."""

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
    """Numbers of steps: of the training, of the warm-up, and until the last layer is trained.

    The warm-up is linear, and a cosine follows it. With 0 `steps` nothing is trained.
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
    """Everything that decides a training by DINOv2 except the seed.

    A micro-batch is the part of a step on one GPU: masks, the KoLeo loss and stochastic depth are
    computed for each one separately.
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
        """Return the recipe with `factor` times every number of steps."""
        schedule = self.schedule
        counts = {name: getattr(schedule, name) for name in STEP_COUNTS}
        stretched = {name: factor * count for name, count in counts.items() if count is not None}
        teacher = {"temperature_steps": factor * self.teacher.temperature_steps}
        return self._with({"schedule": stretched, "teacher": teacher})

    def steps(self, train_images: int) -> int:
        """Return the number of steps of the recipe, which the number of images does not change."""
        return self.schedule.steps

    def images(self, train_images: int) -> int:
        """Return steps x batch size."""
        return self.schedule.steps * self.batch.size

    @property
    def averages_weights(self) -> bool:
        """Return True: the teacher is a moving average of the weights."""
        return True

    @property
    def forward_passes(self) -> float:
        """Return the cost of a training image in forward passes.

        Global crops pass through teacher and student, local crops through the student only. A local
        crop counts by its area as a share of a global crop's.
        """
        area = (self.crops.local_size / self.data.image_size) ** 2
        return 2 + 3 * (1 - self.drop_path) * (2 + self.crops.local_count * area)
