"""A small checkout, whose targets are priced."""

from replication.config.recipes.classification import ClassificationRecipe
from tests.replication.cli.conftest import catalog, checkout

__all__ = ["catalog", "checkout"]


def recipe_of(model, **args):
    """A recipe of a model of timm with other arguments."""
    return ClassificationRecipe.model_validate(
        {
            "model": {"name": model, "args": args},
            "data": {"dataset": "imagenet"},
            "optimizer": {"lr": 1e-3},
            "schedule": {"epochs": 1},
            "batch": {"size": 2, "micro": 2},
        }
    )
