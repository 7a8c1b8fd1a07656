"""The recipe of a segmenter: a configuration of MMSegmentation, and what is laid over it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from replication.plan.recipe import Training
from replication.plan.schema import Delta, Placed, Strict
from replication.plan.source import FOLDER, config_digest, config_path, config_strings

OF_MMSEG = """```python
import vitrail.segmentation
from mmseg.apis import inference_model, init_model

seen = inference_model(init_model("config.py", "mmseg.pth", device="cpu"), "photo.jpg")
```

`vitrail mmseg test config.py mmseg.pth` evaluates it."""


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
    hub_task: ClassVar[str] = "image-segmentation"
    library: ClassVar[str] = "mmsegmentation"
    usage: ClassVar[str] = OF_MMSEG
    exported: ClassVar[tuple[str, ...]] = ("config.py", "mmseg.pth")
    counted_ahead: ClassVar[bool] = True

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

    def names_elsewhere(self) -> Iterable[str]:
        """Every string in the configuration; among them are the types that it names."""
        return config_strings(self.model.name)

    def changed_file(self, root: Path) -> str | None:
        """The configuration, if it says something else than when the recipe was resolved."""
        same = config_digest(self.model.name, root) == self.model.sha256
        return None if same else config_path(self.model.name, root)

    @classmethod
    def derived(cls, written: Delta, root: Path) -> Placed:
        """The digest of the configuration, where it is ours."""
        name = written.get("model", {}).get("name", "")
        if not (digest := config_digest(name, root)):
            return Placed({}, {})
        place = f"computed from {FOLDER / name}.py"
        return Placed({"model": Placed({"sha256": digest}, {"sha256": place})}, {})
