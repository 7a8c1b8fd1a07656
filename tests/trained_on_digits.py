"""A finished run on the digits, of any model."""

import pytest
from torch import nn

from replication.config.datasets import load_registry
from replication.config.recipes.classification import ClassificationRecipe
from replication.config.schema import parse
from replication.context import Trained


@pytest.fixture
def trained_on_digits(root, tmp_path):
    """Make a run of a given model on the digits; keyword arguments change its data."""
    info = load_registry(root / "configs" / "datasets.yaml")["digits"]

    def make(model: nn.Module, seed: int = 0, workers: int = 0, **data) -> Trained:
        recipe = parse(
            ClassificationRecipe,
            {
                "model": {"name": "vit_tiny_patch16_224"},
                "data": {"dataset": "digits", "image_size": 8, "crop_pct": 1.0, **data},
                "optimizer": {"lr": 1e-3},
                "schedule": {"epochs": 1},
                "batch": {"size": 8, "micro": 8},
            },
            "test",
        )
        return Trained(
            "cpu", tmp_path, seed, model=model, recipe=recipe, info=info, workers=workers
        )

    return make
