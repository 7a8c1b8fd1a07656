from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from replication.config.datasets import DatasetInfo
from replication.config.recipes.classification import ClassificationRecipe
from tests.recipes import recipe_fixtures

BASE: dict[str, Any] = {
    "model": {
        "name": "vit_tiny_patch16_224",
        "args": {
            "img_size": 8,
            "patch_size": 4,
            "embed_dim": 16,
            "depth": 2,
            "num_heads": 2,
            "drop_path_rate": 0.1,
        },
    },
    "data": {"dataset": "digits", "image_size": 8},
    "augmentation": {"scale": [0.5, 1.0], "hflip": 0.0, "mixup": 0.2, "cutmix": 1.0},
    "label_smoothing": 0.1,
    "optimizer": {"lr": 0.001, "clip_grad": 1.0},
    "schedule": {"epochs": 2, "warmup_epochs": 1},
    "batch": {"size": 256, "micro": 128},  # 4 steps an epoch
    "ema_decay": 0.9,
}


make_recipe, recipe, info = recipe_fixtures(ClassificationRecipe, BASE, "digits")


@pytest.fixture
def run(info: DatasetInfo, tmp_path: Path) -> Callable[..., Path]:
    """Train in the test's own folder; returns the run folder."""
    from replication.training.dispatch import TrainingRun
    from replication.training.loop import train

    def run(recipe: ClassificationRecipe, name: str = "run", seed: int = 0, **options: Any) -> Path:
        train(TrainingRun(recipe, seed, tmp_path / name, info, tmp_path, **options))
        return tmp_path / name

    return run


@pytest.fixture
def before_step(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let a training do something to its trainer before a step, of which the first is 0."""
    from replication.training.step import ClassifierTrainer

    step = ClassifierTrainer.step

    def before_step(number: int, act: Callable[[ClassifierTrainer], None]) -> None:
        def stepped(self: ClassifierTrainer, at: int, batches: Any) -> Any:
            if at == number:
                act(self)
            return step(self, at, batches)

        monkeypatch.setattr(ClassifierTrainer, "step", stepped)

    return before_step
