from pathlib import Path

import numpy as np
import pytest

from vitrine.measures.context import Context
from vitrine.variance.augmentation_measures import augmentation_montage, augmentation_variance

CONTEXT = Context(device="cpu", data_root=Path("data"), seed=0)


@pytest.fixture(scope="module")
def measured():
    return augmentation_variance(CONTEXT, image_size=32, images=32, batches=40)


@pytest.mark.parametrize("name", ["nearest", "cutmix own", "cutmix default"])
def test_copying_keeps_the_variance_of_a_batch_exactly(measured, name):
    assert measured[f"{name}/pooled"] == pytest.approx(1, abs=1e-4)


def test_white_noise_loses_what_theorem_1_says_and_photos_much_less(measured):
    for mode in ("bilinear", "bicubic"):
        theory = measured[f"{mode} noise/pooled theory"]
        assert measured[f"{mode} noise/pooled"] == pytest.approx(theory, rel=0.02)
        assert theory < 0.8 < 0.95 < measured[f"{mode}/pooled"] < 1


def test_mixup_at_a_fixed_lambda_agrees_with_its_theory_over_all_pairs(measured):
    for quantity in ("pooled", "within"):
        theory = measured[f"mixup half/{quantity} theory"]
        assert measured[f"mixup half/{quantity}"] == pytest.approx(theory, rel=0.02)


def test_drawn_mixup_agrees_with_the_mean_over_its_draws(measured):
    """variance, Sec. "Variance Shift Due to Mixup"."""
    for alpha in ("0.2", "0.4", "0.8"):
        theory = measured[f"mixup {alpha}/pooled theory"]
        assert measured[f"mixup {alpha}/pooled"] == pytest.approx(theory, abs=0.1)


@pytest.mark.parametrize("normalization", ["own", "default", "inception"])
@pytest.mark.parametrize("mode", ["const", "rand", "pixel"])
def test_random_erasing_agrees_with_its_theory(measured, mode, normalization):
    for quantity in ("pooled", "within"):
        name = f"{mode} {normalization}/{quantity}"
        assert measured[name] == pytest.approx(measured[f"{name} theory"], rel=0.08)


def test_only_noise_of_unit_variance_keeps_standardised_photos(measured):
    """variance, Sec. "Variance Shift Due to Random Erasing"."""
    assert measured["pixel own/pooled theory"] == pytest.approx(1, abs=1e-3)
    assert measured["const own/pooled"] < 0.9
    assert measured["pixel inception/pooled"] > 1.1


def test_the_mode_of_erasing_shows_within_an_image_and_not_in_a_batch(measured):
    rand, pixel = (measured[f"{mode} own/pooled theory"] for mode in ("rand", "pixel"))
    assert rand == pytest.approx(pixel, abs=1e-3)
    assert measured["rand own/within theory"] < measured["pixel own/within theory"] - 0.01


def test_the_same_seed_measures_the_same():
    first, second = (
        augmentation_variance(CONTEXT, image_size=16, images=4, batches=2) for _ in range(2)
    )
    assert first == second


def test_the_montage_shows_standardised_photos_and_what_becomes_of_them():
    values = augmentation_montage(CONTEXT, image_size=72)
    assert values["first image/variance"] == pytest.approx(1, abs=0.01)
    assert values["Mixup/variance"] < 0.8 < values["Cutmix/variance"]
    pixels = np.asarray(values["pixels erasing const"])
    assert pixels.shape == (72, 72, 3)
    assert (pixels == 128).all(axis=-1).mean() > 0.15
