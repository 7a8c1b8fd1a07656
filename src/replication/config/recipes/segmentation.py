"""The recipe of a segmenter: a configuration of MMSegmentation, and what is laid over it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, PositiveInt

from replication.config.python_source import FOLDER, config_files, strings_in
from replication.config.recipe import PART, Part, Training, Whole, short_hash
from replication.config.schema import Delta, Placed, Strict

OF_MMSEG = """```python
import vitrail.segmentation
from mmseg.apis import inference_model, init_model

seen = inference_model(init_model("config.py", "mmseg.pth", device="cpu"), "photo.jpg")
```

`vitrail mmseg test config.py mmseg.pth` evaluates it."""


class Segmenter(Strict):
    """An MMSegmentation configuration, and what is laid over its `model`.

    `name` is a file of ``configs/segmentation`` without its suffix, or one of MMSegmentation's own
    as ``mmseg::swin/<file>``. `files` is the code of the former and of those of ours that it
    inherits, the most basic first, by their paths in that folder.
    """

    weights_from: ClassVar[None] = None  # it starts from published weights, never from a run's

    name: str
    args: dict[str, Any] = {}
    pretrained: str | None = Field(
        None,
        description="published weights of the backbone, or of the whole segmenter where "
        "schedule.steps is 0: a timm name, or a checkpoint's URL",
    )
    files: dict[str, str] = Field(
        {}, description="read from configs/segmentation: the code of our files, by their names"
    )

    @property
    def published(self) -> str | None:
        """As `Model.published`."""
        return self.pretrained


class Scenes(Strict):
    """The dataset; how its images become tensors is the configuration's."""

    dataset: str
    version: PositiveInt = 1
    part: Part = PART


class Steps(Strict):
    """Optimiser steps; the configuration's learning rate schedule is stretched to them.

    Zero steps: weights are used as they come, and published ones are those of the whole segmenter.
    """

    steps: int = Field(ge=0)


class SegmentationRecipe(Training):
    """Everything that decides the training of a segmenter but the seed."""

    engine: ClassVar[str] = "replication.training.segmentation.training"
    builder: ClassVar[str] = "replication.training.segmentation.config"
    hub_task: ClassVar[str] = "image-segmentation"
    library: ClassVar[str] = "mmsegmentation"
    usage: ClassVar[str] = OF_MMSEG
    rate: ClassVar[tuple[str, ...]] = ("options", "optim_wrapper", "optimizer", "lr")
    score: ClassVar[tuple[str, str]] = (
        "replication.training.segmentation.accuracy:segmentation_accuracy",
        "mIoU",
    )

    task: Literal["segmentation"] = "segmentation"
    model: Segmenter
    data: Scenes
    options: dict[str, Any] = Field({}, description="laid over the whole configuration")
    schedule: Steps
    batch: Whole

    def longer(self, factor: int) -> Self:
        """As `Training.longer`; the configuration's schedule is stretched to the steps."""
        return self._with({"schedule": {"steps": factor * self.schedule.steps}})

    def steps(self, train_images: int) -> int:
        """As the recipe says, however many images there are."""
        return self.schedule.steps

    def images(self, train_images: int) -> int:
        """Steps x batch."""
        return self.schedule.steps * self.batch.size

    def names_elsewhere(self) -> Iterable[str]:
        """Every string in the configuration; among them are the types that it names.

        MMSegmentation's own files name none of ours.
        """
        return set().union(*map(strings_in, self.model.files.values()))

    def shown(self) -> dict[str, Any]:
        """As `Training.shown`."""
        values = super().shown()
        values["model"]["files"] = {
            name: f"{len(code.splitlines())} lines (digest {short_hash(code)})"
            for name, code in self.model.files.items()
        }
        return values

    @classmethod
    def derived(cls, written: Delta, root: Path) -> Placed:
        """The files of the configuration, where it is ours."""
        model = written.get("model")
        name = model.get("name") if isinstance(model, dict) else None
        if not isinstance(name, str) or not (files := config_files(name, root)):
            return Placed({}, {})
        placed = Placed(files, {name: str(FOLDER / name) for name in files})
        return Placed({"model": Placed({"files": placed}, {})}, {})
