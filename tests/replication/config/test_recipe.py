"""Recipes are immutable, strict, and named by what is in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from replication.config.recipe import Batch, Whole, canonical_json
from replication.config.recipes.classification import ClassificationRecipe
from replication.config.schema import merge, parse
from vitrail.errors import VitrailError

MINIMAL = {
    "model": {"name": "vit_tiny_patch16_224"},
    "data": {"dataset": "digits"},
    "optimizer": {"lr": 1e-3},
    "schedule": {"epochs": 3},
    "batch": {"size": 8, "micro": 4},
}

# Every default ever released: a new field joins the list, nothing on it may change.
RELEASED_DEFAULTS = {
    "model": {
        "name": "vit_tiny_patch16_224",
        "args": {},
        "pretrained": False,
        "weights_from": None,
        "drop_path_rule": "linear",
    },
    "data": {
        "dataset": "digits",
        "version": 1,
        "image_size": 224,
        "normalization": "dataset",
        "interpolation": "bicubic",
        "crop_pct": 0.875,
        "crop_mode": "center",
        "shuffle_labels": False,
    },
    "augmentation": {
        "crop": "random_resized",
        "crop_padding": 4,
        "crop_step": 1,
        "crop_count": 1,
        "resize_last": False,
        "scale": [0.08, 1.0],
        "ratio": [0.75, 1.3333333333333333],
        "hflip": 0.5,
        "vflip": 0.0,
        "color_jitter": 0.0,
        "auto_augment": None,
        "auto_augment_spatial": True,
        "erase_prob": 0.0,
        "erase_mode": "pixel",
        "erase_count": 1,
        "erase_scale": [0.02, 0.3333333333333333],
        "circular_shift": 0,
        "mixup": 0.0,
        "cutmix": 0.0,
        "mix_prob": 1.0,
        "mix_switch_prob": 0.5,
        "repeats": 1,
    },
    "loss": "cross_entropy",
    "label_smoothing": 0.0,
    "bce_target_threshold": None,
    "optimizer": {
        "name": "adamw",
        "lr": 0.001,
        "weight_decay": 0.05,
        "betas": None,
        "eps": None,
        "momentum": 0.9,
        "layer_decay": None,
        "group_lr": {},
        "clip_grad": None,
    },
    "schedule": {
        "epochs": 3,
        "name": "cosine",
        "warmup_epochs": 0,
        "warmup_lr": 1e-06,
        "min_lr": 0.0,
    },
    "batch": {"size": 8, "micro": 4},
    "precision": "fp32",
    "ema_decay": None,
    "grad_checkpointing": False,
    "compile": False,
}

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda children: st.dictionaries(st.text(max_size=3), children, max_size=3),
    max_leaves=10,
)


def recipe(**changes):
    return parse(ClassificationRecipe, merge(MINIMAL, changes), "here")


def test_a_recipe_cannot_be_changed():
    with pytest.raises(ValidationError):
        recipe().label_smoothing = 0.2


def test_the_hash_follows_what_is_said_and_not_how():
    spelled_out = recipe(label_smoothing=0.0, data={"dataset": "digits", "image_size": 224})
    assert spelled_out.hash == recipe().hash
    assert recipe(optimizer={"lr": 2e-3}).hash != recipe().hash


def test_the_hash_of_a_known_recipe_never_changes():
    """A changed default would give old runs a new meaning under an old name."""
    assert recipe().canonical_json() == (
        '{"batch":{"micro":4,"size":8},"data":{"dataset":"digits"},'
        '"model":{"name":"vit_tiny_patch16_224"},"optimizer":{"lr":0.001},"schedule":{"epochs":3}}'
    )
    resolved = recipe().model_dump(mode="json")
    assert merge(resolved, RELEASED_DEFAULTS) == resolved


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"optimizer": {"lrr": 1}}, "unknown key 'optimizer.lrr'; did you mean 'lr'?"),
        ({"epochs": 3}, "unknown key 'epochs'; did you mean 'schedule.epochs'?"),
        ({"modle": {}}, "unknown key 'modle'; did you mean 'model'?"),
        ({"schedule": {"epochs": "x", "epoch": 3}}, "unknown key 'schedule.epoch'; did you mean"),
        ({"precision": "fp8"}, "'precision' is 'fp8'"),
        ({"batch": {"size": 10, "micro": 4}}, "multiple of micro (4)"),
        ({"schedule": {"epochs": 3, "warmup_epochs": 3}}, "below epochs (3)"),
        ({"data": {"image_size": 0}}, "'data.image_size' is 0"),
        ({"bce_target_threshold": 0.0}, "needs loss: binary_cross_entropy"),
        (
            {
                "loss": "binary_cross_entropy",
                "bce_target_threshold": 0.0,
                "label_smoothing": 0.1,
            },
            "lifts every class above",
        ),
        ({"augmentation": {"auto_augment_spatial": False}}, "needs an unweighted auto_augment"),
        (
            {"augmentation": {"auto_augment_spatial": False, "auto_augment": "rand-m9-tweights"}},
            "needs an unweighted auto_augment: rand-...; set that too",
        ),
    ],
)
def test_a_wrong_recipe_is_refused_in_one_sentence(changes, sentence):
    with pytest.raises(VitrailError) as error:
        recipe(**changes)
    assert str(error.value).startswith("here: ")
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_field_is_named():
    with pytest.raises(VitrailError, match="'optimizer' is missing"):
        parse(ClassificationRecipe, {k: v for k, v in MINIMAL.items() if k != "optimizer"}, "here")


@given(st.dictionaries(st.text(max_size=3), plain, max_size=4))
def test_merging_with_nothing_changes_nothing(data):
    assert merge(data, {}) == data == merge({}, data)


@given(*[st.dictionaries(st.sampled_from("abc"), plain, max_size=3)] * 3)
def test_merging_dictionaries_of_values_is_associative(a, b, c):
    def values(data):  # one level of values under fixed kinds, so that no dict meets a number
        return {k: v for k, v in data.items() if not isinstance(v, dict)}

    a, b, c = values(a), values(b), values(c)
    assert merge(merge(a, b), c) == merge(a, merge(b, c)) == {**a, **b, **c}


def test_merging_goes_into_nested_dictionaries_and_replaces_lists():
    base = {"a": {"x": 1, "y": [1, 2]}, "b": 1}
    assert merge(base, {"a": {"y": [3]}}) == {"a": {"x": 1, "y": [3]}, "b": 1}
    assert base["a"]["y"] == [1, 2]


def test_canonical_json_refuses_what_json_has_not():
    with pytest.raises(ValueError, match="Out of range"):
        canonical_json({"lr": float("nan")})


@pytest.mark.parametrize(("world", "share"), [(1, 4), (2, 2), (4, 1)])
def test_devices_share_the_micro_batches_of_a_step(world, share):
    assert Batch(size=64, micro=16).share(world) == share
    assert Whole(size=4).share(world) == share


@pytest.mark.parametrize("world", [3, 8])
def test_devices_that_cannot_share_a_step_are_told_which_numbers_can(world):
    with pytest.raises(VitrailError, match=rf"64 .* 16 .* {world} devices .* 1 or 2 or 4"):
        Batch(size=64, micro=16).share(world)
    with pytest.raises(VitrailError, match=rf"size 4 .* {world} devices .* 1 or 2 or 4"):
        Whole(size=4).share(world)
