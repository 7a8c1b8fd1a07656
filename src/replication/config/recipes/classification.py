"""The recipe of a classifier."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from replication.config.recipe import EpochTraining


class ClassificationRecipe(EpochTraining):
    """Everything that decides the training of a classifier except the seed."""

    engine: ClassVar[str] = "replication.training.loop"
    hub_task: ClassVar[str] = "image-classification"

    task: Literal["classification"] = "classification"
    loss: Literal["cross_entropy", "binary_cross_entropy"] = "cross_entropy"
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    bce_target_threshold: float | None = Field(
        None, ge=0, lt=1, description="binary cross-entropy: soft targets above this are 1, else 0"
    )
    ema_decay: float | None = Field(None, gt=0, lt=1, description="weights average that is saved")
    grad_checkpointing: bool = False
    compile: bool = False

    @model_validator(mode="after")
    def _threshold_has_its_loss(self) -> ClassificationRecipe:
        if self.bce_target_threshold is not None and self.loss != "binary_cross_entropy":
            raise ValueError("bce_target_threshold needs loss: binary_cross_entropy; set that too")
        if self.bce_target_threshold == 0 and self.label_smoothing:
            raise ValueError(
                "label_smoothing lifts every class above bce_target_threshold 0; drop one"
            )
        return self

    @property
    def averages_weights(self) -> bool:
        """Tell whether a moving average of the weights is kept beside them."""
        return self.ema_decay is not None
