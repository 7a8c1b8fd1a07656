"""Import the modules that train a recipe and build its model; the recipe's task names them."""

# decides no number

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, cast

from typing_extensions import TypeVar

from replication.config.settings import TrainingOptions
from vitrail.errors import VitrailError

if TYPE_CHECKING:
    from torch import nn

    from replication.config.datasets import DatasetInfo
    from replication.config.recipe import Training
    from replication.config.recipes.classification import ClassificationRecipe

R = TypeVar("R", bound="Training", default="ClassificationRecipe", covariant=True)


@dataclass(frozen=True)
class TrainingRun(Generic[R]):
    """One run to train: a recipe with a seed, in a folder of its own.

    Args:
        recipe: what to train.
        seed: decides all randomness.
        folder: the run folder; gets recipe.yaml, log.jsonl, weights.safetensors and
            finished.json.
        dataset: the recipe's dataset.
        data_root: where the datasets lie.
        device: torch's name of the device.
        options: how the training is carried out; they do not change a bit of the weights.
        initial: file of the weights that the recipe starts from: published ones, or those of
            another run. None for published weights loads them from timm's own store. The file's
            SHA-256 is recorded in finished.json.
        retrain: train a finished run again if its weights were trained by different code.
        stop_after: stop, with a checkpoint, after this many steps, counted from the run's start.
        commit: the commit that the training is planned at.
    """

    recipe: R
    seed: int
    folder: Path
    dataset: DatasetInfo
    data_root: Path
    device: str = "cpu"
    options: TrainingOptions = field(default_factory=TrainingOptions)
    initial: Path | None = None
    retrain: bool = False
    stop_after: int | None = None
    commit: str | None = None


class Engine(Protocol):
    """The interface of the module that a recipe names as its `engine`."""

    def train(self, run: TrainingRun[Training]) -> Path:
        """Train as `replication.training.loop.train` does; return the path of the weights."""


class Builder(Protocol):
    """The interface of the module that a recipe names as its `builder`."""

    def build_model(self, recipe: Training, classes: int) -> nn.Module:
        """Make the recipe's model without published weights."""

    def image_shape(self, recipe: Training) -> tuple[int, int, int]:
        """Return (channels, height, width) of the model's input in training."""


def engine_of(recipe: Training) -> Engine:
    """Import the engine that a recipe names; VitrailError if its packages are not installed."""
    return cast(Engine, _import(recipe.engine))


def builder_of(recipe: Training) -> Builder:
    """Import the builder that a recipe names; VitrailError if its packages are not installed."""
    return cast(Builder, _import(recipe.builder))


def _import(module: str) -> object:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise VitrailError(
            f"{module} cannot be imported ({error}): install envs/requirements.lock with "
            "envs/install.sh"
        ) from None
