"""Consistency of any classifier of timm's on any images, without a recipe or a dataset."""

import math

import pytest
import timm
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import vitrail.models
from vitrail.errors import VitrailError
from vitrail.measures.consistency import (
    Condition,
    circular_consistencies,
    circular_consistency,
    crop_consistency,
    standard_shift,
    worst_shift,
    zero_padded_consistency,
)

SIDE = 16


def small(name, **options):
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=10, img_size=SIDE, embed_dim=16, **options).eval()
    for parameter in model.parameters():  # timm's weights say hardly anything of so few pixels
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.2)
    return model


@pytest.fixture(scope="module")
def vit():
    return small("vit_tiny_patch16_224", patch_size=4, depth=1, num_heads=2)


def loader(side=SIDE, batch_size=15):
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(30, 3, side, side, generator=generator)
    return DataLoader(TensorDataset(images, torch.arange(30) % 10), batch_size)


def test_a_plain_vit_is_inconsistent_and_an_adaptive_swin_is_not(vit):
    options = {"depths": (1, 1), "num_heads": (1, 1), "window_size": 2}
    swin = small("a_swin_tiny_patch4_window7_224", **options)
    adaptive, plain = (circular_consistency(model, loader()) for model in (swin, vit))
    assert (adaptive.consistency, adaptive.bitwise, adaptive.max_logit_difference) == (100, 100, 0)
    assert plain.consistency < 100
    assert plain.max_logit_difference > 0
    assert (plain.images, plain.pairs) == (30, 1)
    assert worst_shift(swin, loader(), 20) == (100, 30, 20)
    assert worst_shift(vit, loader(), 20).consistency < plain.consistency


@pytest.mark.parametrize(
    "measure",
    [
        lambda model, batches, **given: circular_consistency(model, batches, **given),
        lambda model, batches, **given: zero_padded_consistency(
            model, batches, 3, torch.full((3,), -2.0), **given
        ),
        lambda model, batches, **given: crop_consistency(
            nn.Sequential(nn.AdaptiveAvgPool2d(SIDE), model), batches, 3, **given
        ),
    ],
    ids=["circular", "zero", "crop"],
)
def test_draws_follow_from_the_seed_and_the_images_numbers_alone(vit, measure):
    def found(batch_size=15, **given):
        return measure(vit, loader(batch_size=batch_size), pairs=2, **given)

    assert found(7) == found()
    assert found(indices=range(30)) == found()
    assert found(seed=1).max_logit_difference != found().max_logit_difference
    assert found(indices=range(30, 60)).max_logit_difference != found().max_logit_difference


def test_without_a_shift_both_views_are_the_image(vit):
    nowhere = circular_consistency(vit, loader(), Condition(max_offset=0.0))
    assert (nowhere.consistency, nowhere.bitwise) == (100, 100)
    assert zero_padded_consistency(vit, loader(), 0, torch.zeros(3)).bitwise == 100
    assert crop_consistency(vit, loader(), 0).bitwise == 100


def test_top1_is_that_of_the_images_before_any_shift(vit):
    with torch.inference_mode():
        right = [(vit(images).argmax(1) == labels).sum() for images, labels in loader()]
    expected = pytest.approx(100 * sum(right).item() / 30)
    conditions = {"near": Condition(0.25), "upside down": Condition(flip="vertical")}
    found = circular_consistencies(vit, loader(), conditions)
    assert found["near"].top1 == expected
    assert zero_padded_consistency(vit, loader(), 2, torch.zeros(3)).top1 == expected
    assert found["upside down"] == circular_consistency(vit, loader(), conditions["upside down"])


def test_a_standard_shift_is_a_seventh_of_the_side():
    """shift, Sec. 5.2: 32 of 224 pixels."""
    assert [standard_shift(side) for side in (224, 256, 64, 8)] == [32, 36, 9, 1]


def test_images_alone_have_the_consistency_of_their_batches_and_no_accuracy(vit):
    batches = loader()
    alone = circular_consistency(vit, batches.dataset.tensors[0], pairs=3)
    labelled = circular_consistency(vit, batches, pairs=3)
    assert math.isnan(alone.top1)
    assert alone.consistency == labelled.consistency < 100
    assert (alone.images, alone.pairs) == (30, 3)


@pytest.mark.parametrize(
    "measure", [circular_consistency, worst_shift, vitrail.accuracy_under_turns]
)
def test_data_that_comes_in_no_batches_is_refused(vit, measure):
    images, labels = loader().dataset.tensors
    for data in (
        loader().dataset,
        [images],
        [{"pixel_values": images, "labels": labels}],
        DataLoader(loader().dataset, batch_size=None),
    ):
        with pytest.raises(VitrailError, match="batches of images"):
            measure(vit, data)


def test_accuracy_under_turns_is_that_of_images_turned_at_random(vit):
    found = vitrail.accuracy_under_turns(vit, loader())
    assert len(found.right) == len(found.right_rotated) == 30
    symmetric = vitrail.GroupAverage(vit, lambda logits: logits.mean(dim=0)).eval()
    turned = vitrail.accuracy_under_turns(symmetric, loader())
    assert turned.rotated_top1 == turned.top1
    assert turned.equal.all()
    assert not found.equal.all()
