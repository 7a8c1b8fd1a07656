"""A paper's own objective trains under the rules of the loop: resumed, it ends in the same bits."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn

from replication.config.recipe_types import kind_of_paper
from replication.config.schema import merge
from replication.training import custom_training as objective
from replication.training.dispatch import TrainingRun
from tests.replication.training.conftest import BASE
from vitrail.weights_file import read_weights


@dataclass(frozen=True)
class Scaled:
    """A kind of training."""

    task: ClassVar[str] = "scaled"
    noise: float = 0.1


class Objective(nn.Module):
    """Cross-entropy of noisy images, with a scale of the logits that is learned."""

    def __init__(self, model, recipe, classes):
        super().__init__()
        self.model, self.noise = model, recipe.noise
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("seen", torch.zeros(classes))

    def forward(self, images, labels):
        self.seen += torch.bincount(labels, minlength=len(self.seen))
        noisy = images + self.noise * torch.randn_like(images)
        return nn.functional.cross_entropy(self.scale * self.model(noisy), labels)


@pytest.fixture
def train(tmp_path, info, monkeypatch):
    kind = kind_of_paper(Scaled)
    monkeypatch.setattr(objective, "import_function", lambda name, file: Objective)
    own = ("label_smoothing", "ema_decay")
    base = {name: value for name, value in BASE.items() if name not in own}
    recipe = kind.model_validate(merge(base, {"augmentation": {"mixup": 0.0, "cutmix": 0.0}}))

    def train(name, **options):
        run = TrainingRun(recipe, 0, tmp_path / name, info, tmp_path, **options)
        return objective.train(run)

    return train


def test_a_resumed_training_ends_in_the_same_bits(train):
    straight = read_weights(train("straight"))
    train("cut", stop_after=3)
    resumed = read_weights(train("cut"))
    assert straight.keys() == resumed.keys()
    assert all(torch.equal(value, resumed[name]) for name, value in straight.items())
    assert "head.weight" in straight  # the model alone is saved
    assert not any(name.startswith(("model.", "scale", "seen")) for name in straight)
