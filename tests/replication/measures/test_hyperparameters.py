"""A table of hyperparameters prints what training builds, not what a recipe is called."""

from pathlib import Path

import pytest

from replication.config.datasets import load_registry
from replication.config.recipes.classification import ClassificationRecipe
from replication.config.schema import merge, parse
from replication.context import Described
from replication.measures.hyperparameters import hyperparameters
from vitrail.errors import VitrailError

DEIT_III = {
    "model": {
        "name": "deit3_small_patch16_224",
        "args": {"depth": 3, "embed_dim": 12, "num_heads": 2, "drop_path_rate": 0.4},
        "drop_path_rule": "constant",
    },
    "data": {"dataset": "imagenet"},
    "augmentation": {"auto_augment": "3a", "color_jitter": 0.3, "repeats": 3, "mixup": 0.8},
    "loss": "binary_cross_entropy",
    "optimizer": {"name": "lamb", "lr": 3e-3, "weight_decay": 0.02, "clip_grad": 1.0},
    "schedule": {"epochs": 400, "warmup_epochs": 5},
    "batch": {"size": 2048, "micro": 128},
}
PLAIN = {
    "augmentation": {"color_jitter": 0.0, "repeats": 1, "mixup": 0.0},
    "loss": "cross_entropy",
    "model": {"args": {"drop_path_rate": 0.0}},
    "optimizer": {"name": "adamw", "clip_grad": None},
    "schedule": {"name": "constant", "warmup_epochs": 0},
}


@pytest.fixture
def described(root):
    info = load_registry(root / "configs" / "datasets.yaml")["imagenet"]

    def make(**changes) -> Described:
        return Described(
            "cpu", Path(), 0, parse(ClassificationRecipe, merge(DEIT_III, changes), "test"), info
        )

    return make


def test_deit_iii_trains_as_table_6_prints(described):
    assert hyperparameters(described()) == {
        "batch_size": 2048,
        "lamb": 1,
        "adamw": 0,
        "lr": 3e-3,
        "cosine": 1,
        "weight_decay": 0.02,
        "epochs": 400,
        "thousand_images": 1281.167,
        "warmup_epochs": 5,
        "drop_path": 0.4,
        "repeats": 3,
        "repeated_augmentation": 1,
        "clip_grad": 1.0,
        "mixup": 0.8,
        "cutmix": 0,
        "color_jitter": 0.3,
        "binary_cross_entropy": 1,
    }


def test_rates_of_single_parameters_are_no_hyperparameter_of_the_whole(described):
    assert hyperparameters(described(optimizer={"group_lr": {"pos_embed": 0.1}}))["lr"] == 3e-3


def test_what_is_left_out_is_0(described):
    values = hyperparameters(described(**PLAIN))
    assert {key: value for key, value in values.items() if value} == {
        "batch_size": 2048,
        "adamw": 1,
        "lr": 3e-3,
        "weight_decay": 0.02,
        "epochs": 400,
        "thousand_images": 1281.167,
        "repeats": 1,
    }


def test_randaugment_that_turns_the_jitter_off_is_seen(described):
    changed = described(augmentation={"auto_augment": "rand-m9"})
    assert hyperparameters(changed)["color_jitter"] == 0


def test_a_model_that_cannot_be_built_is_refused(described):
    with pytest.raises(VitrailError, match="refuses args"):
        hyperparameters(described(model={"args": {"embed_dims": 3}}))
