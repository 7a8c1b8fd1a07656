"""What the types declare is all that the library reads: objects with no more do as recipes do."""

from pathlib import Path
from types import SimpleNamespace
from typing import get_type_hints

import numpy as np
import pytest
import torch
from PIL import Image

from replication.config.recipe import Model
from replication.config.recipes.self_supervision import SelfSupervisionRecipe
from replication.papers.octic.dinov2 import network
from replication.papers.octic.dinov2.crops import MultiCrop
from replication.papers.octic.dinov2.losses import targets_of
from replication.papers.octic.dinov2.optimizer import Schedules, build_optimizer
from tests.replication.datasets.conftest import digits, recipe
from tests.replication.papers.octic.dinov2.conftest import BASE
from vitrail import factory
from vitrail.images.opening import build
from vitrail.images.transforms import eval_transform, train_transform
from vitrail.recipes import (
    AugmentedRecipe,
    ChannelStatistics,
    DatasetFiles,
    DINOv2Recipe,
    ModelRecipe,
    ViewRecipe,
)
from vitrail.seeding import seed_everything

__all__ = ["digits", "recipe"]

IMAGE = Image.fromarray(np.random.RandomState(0).randint(0, 256, (30, 40, 3), dtype=np.uint8))
AUGMENTATIONS = (
    {"scale": [0.3, 0.6], "ratio": [1, 2], "vflip": 0.5, "color_jitter": 0.4},
    {"crop": "random", "crop_padding": 2, "crop_step": 2, "circular_shift": 3},
    {"crop": "center", "auto_augment": "rand-m9-mstd0.5-inc1", "auto_augment_spatial": False},
    {"crop": "random", "crop_count": 2, "resize_last": True, "auto_augment": "rand-m9"},
    {"erase_prob": 1.0, "erase_mode": "rand", "erase_count": 3, "erase_scale": [0.1, 0.2]},
)


def declared(kind, given):
    """An object with the attributes of `given` that the type declares, and no others."""
    members = [member for base in kind.__mro__ for member in vars(base).items()]
    values = {}
    for name, member in members:
        if isinstance(member, property):
            of_type, value = get_type_hints(member.fget)["return"], getattr(given, name)
            nested = getattr(of_type, "_is_protocol", False)
            values[name] = declared(of_type, value) if nested else value
    return SimpleNamespace(**values)


def seen(transform):
    seed_everything("views")
    return torch.stack([transform(IMAGE) for _ in range(8)])


@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
def test_images_are_shown_as_of_a_recipe(recipe, digits, augmentation):
    full = recipe(**augmentation)
    plain, info = declared(AugmentedRecipe, full), declared(ChannelStatistics, digits)
    assert torch.equal(seen(train_transform(plain, info)), seen(train_transform(full, digits)))
    plain = declared(ViewRecipe, full)
    assert torch.equal(seen(eval_transform(plain, info)), seen(eval_transform(full, digits)))


def test_a_dataset_is_opened_as_of_its_entry(digits):
    plain = build(declared(DatasetFiles, digits), "val", Path("nowhere"))
    image, label = plain[3]
    expected, of = build(digits, "val", Path("nowhere"))[3]
    assert (image.tobytes(), label) == (expected.tobytes(), of)


@pytest.mark.parametrize("rule", ["linear", "constant"])
def test_a_model_is_made_as_of_a_recipe(recipe, rule):
    args = {"img_size": 16, "patch_size": 4, "embed_dim": 16, "depth": 3, "num_heads": 2}
    spec = Model(
        name="vit_tiny_patch16_224", args={**args, "drop_path_rate": 0.3}, drop_path_rule=rule
    )
    full = recipe({"image_size": 16}).model_copy(update={"model": spec})
    plain = declared(ModelRecipe, full)
    made = []
    for given in (full, plain):
        torch.manual_seed(0)
        made.append(factory.build_model(given, 7))
    factory.check_image_size(made[1], plain, torch.device("cpu"))
    images = torch.zeros(1, *factory.image_shape(plain))
    assert torch.equal(made[0].eval()(images), made[1].eval()(images))
    rates = [
        [layer.drop_prob for layer in model.modules() if hasattr(layer, "drop_prob")]
        for model in made
    ]
    assert rates[0] == rates[1]
    assert (len({*rates[1]}) == 1) == (rule == "constant")


def test_dinov2_learns_as_of_a_recipe(digits):
    full = SelfSupervisionRecipe.model_validate(BASE)
    plain = declared(DINOv2Recipe, full)
    found = []
    for given in (full, plain):
        seed_everything("weights")
        student = network.Network(given, network.build_model(given, 0))
        schedules = Schedules(given, build_optimizer(student, given))
        schedules.step_update(2)
        assert targets_of(given)([torch.ones(2, 3)], 1.0, SimpleNamespace(sum=lambda x: x))
        seed_everything("crops")
        crops = MultiCrop(given, declared(ChannelStatistics, digits))(IMAGE)
        tokens = student.backbone(crops[0])
        rates = [group["lr"] for group in schedules.optimizer.param_groups]
        found.append((tokens, rates, schedules.momentum(2), schedules.teacher_temperature(2)))
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][1:] == found[1][1:]
