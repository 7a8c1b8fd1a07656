"""What trains a recipe, and what builds its model: modules that the recipe's task names."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, cast

from typing_extensions import TypeVar

from vitrine.errors import VitrineError

if TYPE_CHECKING:
    from torch import nn

    from vitrine.data.loading import Views
    from vitrine.plan.datasets import DatasetInfo
    from vitrine.plan.jobs import TrainingJob
    from vitrine.plan.recipe import AnyRecipe, Recipe, Training

R = TypeVar("R", bound="Training", default="Recipe", covariant=True)


@dataclass(frozen=True)
class Job(Generic[R]):
    """One run to train: a recipe with a seed, which decides all randomness, in its own folder."""

    recipe: R
    seed: int
    folder: Path
    dataset: DatasetInfo
    data_root: Path  # where the datasets lie
    device: str = "cpu"
    workers: int = 0  # processes that read and transform images, for each training process
    checkpoint_seconds: float = 600.0  # between checkpoints
    # The weights that the recipe starts from: published ones, which None takes from timm's own
    # store, or those of another run.
    initial: Path | None = None
    retrain: bool = False  # a finished run anew, if other code has trained it
    stop_after: int | None = None  # so many steps of the run, with a checkpoint
    validate_every: int | None = None  # epochs, and at the end; changes no bit of the weights
    tensorboard: bool = False  # writes its events beside the log, if it is installed
    # The training images as the model sees them, where no seed changes them: filled in by the first
    # of the runs that share it.
    views: Views = field(default_factory=dict, repr=False)


def one_run(job: TrainingJob, seed: int, views: Views) -> Job[AnyRecipe]:
    """The run of one seed, which starts where the job says; its seeds share `views`.

    Raises VitrineError if the run that it starts from is not trained, or its weights are not its
    own.
    """
    from vitrine.training.model import starting_weights

    shared: Any = {name: value for name, value in job if name in Job.__dataclass_fields__}
    initial = job.published or (starting_weights(job.start, seed) if job.start else None)
    folder = job.folder / f"seed{seed}"
    return Job(seed=seed, folder=folder, initial=initial, views=views, **shared)


class Engine(Protocol):
    """What the module offers that a recipe names as its `engine`."""

    def train(self, job: Job[Training]) -> Path:
        """Train as `vitrine.training.loop.train` does; return the path of the weights."""


class Builder(Protocol):
    """What the module offers that a recipe names as its `builder`."""

    def build_model(self, recipe: Training, classes: int) -> nn.Module:
        """Make the recipe's model without published weights."""

    def image_shape(self, recipe: Training) -> tuple[int, int, int]:
        """(channels, height, width) of an image as the model sees it in training."""


def engine_of(recipe: Training) -> Engine:
    """Import the engine that a recipe names; VitrineError if its packages are not installed."""
    return cast(Engine, _import(recipe.engine))


def builder_of(recipe: Training) -> Builder:
    """Import the builder that a recipe names; VitrineError if its packages are not installed."""
    return cast(Builder, _import(recipe.builder))


def _import(module: str) -> object:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise VitrineError(
            f"{module} cannot be imported ({error}): install envs/requirements.lock with "
            "envs/install.sh"
        ) from None
