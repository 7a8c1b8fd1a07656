"""What trains a recipe, and what builds its model: modules that the recipe's task names."""

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
        options: how it is carried out, which changes no bit of the weights.
        initial: file of the weights that the recipe starts from: published ones, which None takes
            from timm's own store, or those of another run. Its SHA-256 is noted among the facts.
        retrain: train a finished run anew if other code has trained it.
        stop_after: stop, with a checkpoint, once this many steps of the run are taken.
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
    """What the module offers that a recipe names as its `engine`."""

    def train(self, run: TrainingRun[Training]) -> Path:
        """Train as `replication.training.loop.train` does; return the path of the weights."""


class Builder(Protocol):
    """What the module offers that a recipe names as its `builder`."""

    def build_model(self, recipe: Training, classes: int) -> nn.Module:
        """Make the recipe's model without published weights."""

    def image_shape(self, recipe: Training) -> tuple[int, int, int]:
        """(channels, height, width) of an image as the model sees it in training."""


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
