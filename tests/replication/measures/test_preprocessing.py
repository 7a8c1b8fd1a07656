"""A table of preprocessing prints what the transforms that run are, not what a recipe says."""

import json

import pytest
from torchvision.transforms import CenterCrop, Compose, GaussianBlur, Resize

from replication.config.datasets import load_registry
from replication.config.recipes.classification import ClassificationRecipe
from replication.config.schema import parse
from replication.context import Described
from replication.measures import preprocessing as module
from replication.measures.preprocessing import describe, preprocessing
from vitrail.errors import VitrailError


@pytest.fixture
def described(root, tmp_path):
    info = load_registry(root / "configs" / "datasets.yaml")["cifar10"]

    def make(data=None, **augmentation) -> Described:
        recipe = {
            "model": {"name": "any"},
            "data": {"dataset": "cifar10", **(data or {})},
            "augmentation": {"crop": "center", **augmentation},
            "optimizer": {"lr": 1e-3},
            "schedule": {"epochs": 1},
            "batch": {"size": 48, "micro": 48},
        }
        return Described("cpu", tmp_path, 0, parse(ClassificationRecipe, recipe, "test"), info)

    return make


def of(view, values):
    return {
        key.removeprefix(f"{view}/"): value
        for key, value in values.items()
        if key.startswith(f"{view}/") and value
    }


@pytest.mark.parametrize(
    ("data", "resize", "center_crop"),
    [({}, 256, 224), ({"image_size": 256, "crop_pct": 0.8767}, 292, 256)],
)
def test_flips_and_normalisation_alone_are_what_table_a2_prints(
    described, data, resize, center_crop
):
    values = preprocessing(described(data))
    size = {"resize/short": resize, "center_crop": center_crop}
    flips = {"hflip": 1, "hflip/probability": 0.5}
    assert of("train", values) == {**size, **flips, "normalization": 1}
    assert of("eval", values) == {**size, "normalization": 1}


def test_both_sides_are_told_where_an_image_is_resized_to_them(described):
    values = preprocessing(described({"crop_mode": "squash"}))
    sides = {"resize/short": 256, "resize/long": 256, "center_crop": 224}
    assert of("eval", values) == {**sides, "normalization": 1}


@pytest.mark.parametrize(("magnitude", "layers"), [(9, 2), (10, 6)])
def test_randaugment_and_erasing_are_what_tables_a3_to_a5_print(described, magnitude, layers):
    policy = f"rand-m{magnitude}-n{layers}-mstd0.5-inc1"
    values = preprocessing(described(auto_augment=policy, erase_prob=0.25))
    train = of("train", values)
    assert {key: train[key] for key in train if key.startswith("randaugment")} == {
        "randaugment": 1,
        "randaugment/magnitude": magnitude,
        "randaugment/mstd": 0.5,
        "randaugment/layers": layers,
        "randaugment/increasing": 1,
        "randaugment/operations": 15,
    }
    assert (train["erasing"], train["erasing/probability"]) == (1, 0.25)
    assert of("eval", values) == {"resize/short": 256, "center_crop": 224, "normalization": 1}


def test_severity_that_does_not_increase_is_told_apart(described):
    values = preprocessing(described(auto_augment="rand-m9-inc0"))
    assert (values["train/randaugment/increasing"], values["train/randaugment/mstd"]) == (0, 0)
    assert values["train/randaugment/layers"] == 2


def test_random_crops_jitter_and_circular_shifts_are_named(described):
    values = preprocessing(
        described(crop="random_resized", hflip=0.0, color_jitter=0.4, circular_shift=224)
    )
    assert of("train", values) == {
        "random_resized_crop": 224,
        "color_jitter": 1,
        "circular_shift": 224,
        "normalization": 1,
    }


def test_both_views_have_every_key_as_a_number(described):
    values = preprocessing(described())
    train = [key.removeprefix("train/") for key in values if key.startswith("train/")]
    assert [f"train/{key}" for key in train] + [f"eval/{key}" for key in train] == list(values)
    assert all(isinstance(value, int | float) for value in values.values())
    json.dumps(values, allow_nan=False)


def test_what_runs_is_printed_even_where_the_recipe_says_otherwise(described, monkeypatch):
    ours = Compose([Resize(20), CenterCrop(10)])
    monkeypatch.setattr(module, "train_transform", lambda recipe, info: ours)
    values = preprocessing(described())
    assert of("train", values) == {"resize/short": 20, "center_crop": 10}


def test_a_transform_without_a_key_is_refused_and_not_passed_over():
    with pytest.raises(VitrailError, match=r"uses GaussianBlur, which .* has no key for"):
        describe([Resize(8), GaussianBlur(3)])
