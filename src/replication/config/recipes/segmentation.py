"""The recipe of a segmenter: a configuration of MMSegmentation, and the changes to it."""

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
    """An MMSegmentation configuration; `args` are merged over its `model`.

    `name` is a file of ``configs/segmentation`` without its suffix, or a file of MMSegmentation as
    ``mmseg::swin/<file>``. In the first case, `files` has the code of this file and of those of
    ours that it inherits, the most basic first, by their paths in that folder.
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
        """Return the name of the published weights that training starts from; None for none."""
        return self.pretrained


class Scenes(Strict):
    """The dataset; the configuration defines how its images become tensors."""

    dataset: str
    version: PositiveInt = 1
    part: Part = PART


class Steps(Strict):
    """The number of optimiser steps; the learning rate schedule is stretched to them.

    The schedule is the configuration's. With 0 steps nothing is trained, and published weights are
    those of the whole segmenter.
    """

    steps: int = Field(ge=0)


class SegmentationRecipe(Training):
    """Everything that decides the training of a segmenter except the seed."""

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
        """Return the recipe with `factor` times the steps; the schedule is stretched to them."""
        return self._with({"schedule": {"steps": factor * self.schedule.steps}})

    def steps(self, train_images: int) -> int:
        """Return the number of steps of the recipe, which the number of images does not change."""
        return self.schedule.steps

    def images(self, train_images: int) -> int:
        """Return steps x batch size."""
        return self.schedule.steps * self.batch.size

    def names_elsewhere(self) -> Iterable[str]:
        """Return every string in the configuration; the types that it names are among them.

        MMSegmentation's own files are not read, since they name no type of ours.
        """
        return set().union(*map(strings_in, self.model.files.values()))

    def shown(self) -> dict[str, Any]:
        """Return the recipe for display, as `Training.shown`."""
        values = super().shown()
        values["model"]["files"] = {
            name: f"{len(code.splitlines())} lines (digest {short_hash(code)})"
            for name, code in self.model.files.items()
        }
        return values

    @classmethod
    def derived(cls, written: Delta, root: Path) -> Placed:
        """Return the configuration's files with their places; empty if none is ours."""
        model = written.get("model")
        name = model.get("name") if isinstance(model, dict) else None
        if not isinstance(name, str) or not (files := config_files(name, root)):
            return Placed({}, {})
        placed = Placed(files, {name: str(FOLDER / name) for name in files})
        return Placed({"model": Placed({"files": placed}, {})}, {})
