import pytest
import torch
from torch.nn.functional import binary_cross_entropy, cross_entropy, one_hot

from replication.training.step import build_loss, build_mixing
from vitrail.errors import VitrailError
from vitrail.seeding import seed_everything

PLAIN = {"augmentation": {"mixup": 0.0, "cutmix": 0.0}}
MIXUP = {"augmentation": {"mixup": 0.2, "cutmix": 0.0}}


def batch(size=8, classes=10):
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(size, 3, 8, 8, generator=generator)
    labels = torch.randint(classes, (size,), generator=generator)
    return images, labels, torch.randn(size, classes, generator=generator)


def test_a_micro_batch_is_mixed_alike_whatever_was_drawn_before(make_recipe):
    images, labels, _ = batch()
    mixing = build_mixing(make_recipe(), 10)
    results = []
    for warm_up in (0, 3):
        torch.rand(warm_up)
        seed_everything("micro-batch", 0, 7, 1)
        results.append(mixing(images.clone(), labels))
    seed_everything("micro-batch", 0, 7, 2)
    other, _ = mixing(images.clone(), labels)
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert not torch.equal(results[0][0], other)


def test_mixup_adds_images_and_smoothed_labels_with_the_same_weight(make_recipe):
    images, labels, _ = batch()
    mixing = build_mixing(make_recipe(MIXUP), 10)
    seed_everything("micro-batch", 0, 0, 0)
    mixed, targets = mixing(images.clone(), labels)
    difference = images - images.flip(0)
    weight = ((mixed - images.flip(0)) * difference).sum() / difference.square().sum()
    smooth = 0.9 * one_hot(labels, 10) + 0.1 / 10
    assert 0 < weight < 1
    torch.testing.assert_close(mixed, weight * images + (1 - weight) * images.flip(0))
    torch.testing.assert_close(targets, weight * smooth + (1 - weight) * smooth.flip(0))


def test_without_mixup_and_cutmix_nothing_is_mixed(make_recipe):
    images, labels, _ = batch()
    mixed, targets = build_mixing(make_recipe(PLAIN), 10)(images.clone(), labels)
    assert torch.equal(mixed, images)
    assert torch.equal(targets, labels)


def test_an_image_without_a_partner_in_a_short_last_batch_is_left_out(make_recipe):
    images, labels, _ = batch(5)
    results = []
    for size in (4, 5):
        seed_everything("micro-batch", 0, 0, 0)
        results.append(build_mixing(make_recipe(), 10)(images[:size].clone(), labels[:size]))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


def test_an_odd_micro_batch_cannot_be_mixed(make_recipe):
    recipe = make_recipe({"batch": {"size": 15, "micro": 5}})
    with pytest.raises(VitrailError, match=r"batch\.micro is 5"):
        build_mixing(recipe, 10)
    build_mixing(make_recipe(PLAIN, {"batch": {"size": 15, "micro": 5}}), 10)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("mixed", [False, True])
def test_cross_entropy_is_that_of_the_smoothed_or_mixed_targets(make_recipe, smoothing, mixed):
    images, labels, logits = batch()
    recipe = make_recipe(MIXUP if mixed else PLAIN, {"label_smoothing": smoothing})
    seed_everything("micro-batch", 0, 0, 0)
    _, targets = build_mixing(recipe, 10)(images.clone(), labels)
    smooth = (1 - smoothing) * one_hot(labels, 10) + smoothing / 10
    expected = cross_entropy(logits, targets if mixed else smooth)
    torch.testing.assert_close(build_loss(recipe)(logits, targets), expected)


@pytest.mark.parametrize("mixed", [False, True])
def test_binary_cross_entropy_is_averaged_over_images_and_classes(make_recipe, mixed):
    images, labels, logits = batch()
    recipe = make_recipe(MIXUP if mixed else PLAIN, {"loss": "binary_cross_entropy"})
    seed_everything("micro-batch", 0, 0, 0)
    _, targets = build_mixing(recipe, 10)(images.clone(), labels)
    smooth = 0.9 * one_hot(labels, 10) + 0.1 / 10
    expected = binary_cross_entropy(logits.sigmoid(), targets if mixed else smooth)
    torch.testing.assert_close(build_loss(recipe)(logits, targets), expected)


def test_with_a_threshold_both_labels_of_a_mixed_image_count_whole(make_recipe):
    """As DeiT III trains, without smoothing, which lifts every class above a threshold of 0."""
    images, labels, logits = batch()
    loss = {"loss": "binary_cross_entropy", "bce_target_threshold": 0.0, "label_smoothing": 0.0}
    recipe = make_recipe(MIXUP, loss)
    seed_everything("micro-batch", 0, 0, 0)
    _, targets = build_mixing(recipe, 10)(images.clone(), labels)
    whole = (one_hot(labels, 10) + one_hot(labels.flip(0), 10)).clamp(max=1).float()
    expected = binary_cross_entropy(logits.sigmoid(), whole)
    torch.testing.assert_close(build_loss(recipe)(logits, targets), expected)
    assert not torch.equal(targets, whole)
