"""The engine of a recipe: the code that builds its model and trains it, by the recipe's task."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from vitrine.errors import VitrineError

if TYPE_CHECKING:
    from torch import nn

    from vitrine.plan.datasets import DatasetInfo
    from vitrine.plan.recipe import Training


class Engine(Protocol):
    """What a module must offer to be named by a recipe."""

    def train(
        self,
        recipe: Training,
        seed: int,
        folder: Path,
        *,
        info: DatasetInfo,
        data_root: Path,
        device: str = "cpu",
        workers: int = 0,
        checkpoint_seconds: float = 600.0,
        initial: Path | None = None,
        stop_after: int | None = None,
    ) -> Path:
        """Train as `vitrine.training.loop.train` does; return the path of the weights."""

    def build_model(self, recipe: Training, classes: int) -> nn.Module:
        """Make the recipe's model without published weights."""

    def image_shape(self, recipe: Training) -> tuple[int, int, int]:
        """(channels, height, width) of an image as the model sees it in training."""


def engine_of(recipe: Training) -> Engine:
    """Import the engine that a recipe names.

    Raises:
        VitrineError: packages that it stands on cannot be imported.
    """
    try:
        return cast(Engine, importlib.import_module(recipe.engine))
    except ImportError as error:
        raise VitrineError(
            f"{recipe.engine} cannot be imported ({error}): install "
            "envs/requirements.lock with envs/install.sh"
        ) from None
