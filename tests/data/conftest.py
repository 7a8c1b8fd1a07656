import pytest

from vitrine.plan.datasets import DatasetInfo
from vitrine.plan.recipe import Recipe


@pytest.fixture(scope="session")
def digits(registry) -> DatasetInfo:
    return registry["digits"]


@pytest.fixture(scope="session")
def recipe():
    """Make a recipe for 28-pixel digits; keyword arguments change its augmentation."""

    def make(data=None, **augmentation) -> Recipe:
        return Recipe.model_validate(
            {
                "model": {"name": "any"},
                "data": {"dataset": "digits", "image_size": 28, **(data or {})},
                "augmentation": augmentation,
                "optimizer": {"lr": 1e-3},
                "schedule": {"epochs": 1},
                "batch": {"size": 8, "micro": 4},
            }
        )

    return make
