"""What recipes and steps are said to be, against small ones that are known."""

from pathlib import Path

import pytest

from replication.context import Described
from replication.papers.octic.dinov2 import training_cost as cost
from replication.papers.octic.dinov2.training_cost import hyperparameters, training_step
from vitrail.errors import VitrailError

DENSE = {"name": "masked_vit_large_patch16_224"}
SHAPE = {"img_size": 16, "patch_size": 4, "embed_dim": 32, "depth": 2, "num_heads": 2}


@pytest.fixture
def described(recipe, info):
    model = recipe.model.model_copy(update={"args": SHAPE})
    return Described("cpu", Path(), 0, recipe=recipe.model_copy(update={"model": model}), info=info)


def test_hyperparameters_are_those_of_the_recipe(described):
    found = hyperparameters(described)
    assert (found["batch_size"], found["adamw"], found["lr"]) == (16, 1, 2e-3)
    assert (found["weight_decay"], found["prototypes"], found["momentum"]) == (0.04, 12, 0.9)
    assert (found["thousand_steps"], found["thousand_warmup_steps"]) == (0.006, 0.002)
    assert (found["mask_ratio/from"], found["mask_ratio/to"]) == (0.1, 0.5)


def test_each_familys_step_is_timed(described):
    i8 = {"name": described.recipe.model.name, "args": {"depth": 1}}
    values = training_step(described, {"vit": DENSE, "i8": i8}, images=4, passes=2, warmup=1)
    assert min(values["vit/images_per_second"], values["i8/images_per_second"]) > 0
    assert values["vit/peak"] is values["i8/peak"] is None


def test_backbones_take_turns_and_equal_ones_are_measured_once(described, monkeypatch):
    built, stepped, step = [], [], cost.SelfSupervisionTrainer.step

    def counted(self, number, batches):
        if self not in built:
            built.append(self)
        stepped.append((built.index(self), number))
        return step(self, number, batches)

    monkeypatch.setattr(cost.SelfSupervisionTrainer, "step", counted)
    models = {
        "l": DENSE,
        "i8": {"name": described.recipe.model.name, "args": {"depth": 1}},
        "h": {"name": "masked_vit_huge_patch16_224", "args": {}},
        "deep": {**DENSE, "args": {"depth": 3}},
    }
    values = training_step(described, models, images=2, passes=2, warmup=1)
    assert stepped == [(model, number) for number in range(3) for model in range(3)]
    for key in ("images_per_second", "spread"):
        assert values[f"l/{key}"] == values[f"h/{key}"] != values[f"deep/{key}"]


def test_the_spread_is_that_of_the_middle_half_of_the_steps():
    assert cost._spread([9.0, 10.0, 11.0, 10.0, 99.0]) == pytest.approx(5.0)
    assert cost._spread([10.0]) is None


def test_a_step_of_one_image_is_refused(described):
    with pytest.raises(VitrailError, match="passes is 1 and images is 1; give at least 1 of"):
        training_step(described, {"vit": DENSE}, images=1, passes=1)
