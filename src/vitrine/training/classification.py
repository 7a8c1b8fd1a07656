"""The engine of classification: timm's models, trained by our own loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitrine.training.loop import train
from vitrine.training.model import build_model

if TYPE_CHECKING:
    from vitrine.plan.recipe import Recipe

__all__ = ["build_model", "image_shape", "train"]


def image_shape(recipe: Recipe) -> tuple[int, int, int]:
    """(channels, height, width) of an image as the model sees it in training."""
    return 3, recipe.data.image_size, recipe.data.image_size
