from pathlib import Path

import numpy as np
import pytest
import torch
from timm.data import Mixup

from vitrail.measures.context import Context
from vitrail.variance.augmentation_measures import (
    augmentation_montage,
    augmentation_variance,
    beta_mixup_variance,
    cutmix_variance,
    erasing_variance,
    mixup_variance,
)

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


def correlated(rho: float) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    first, other = torch.randn(2, 400_000, generator=generator)
    return first, rho * first + (1 - rho**2) ** 0.5 * other


@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.7])
@pytest.mark.parametrize("lam", [0.1, 0.5, 0.8])
def test_mixup_has_its_variance_at_any_correlation(lam, rho):
    """variance, Proposition 1."""
    first, second = correlated(rho)
    mixed = lam * first + (1 - lam) * second
    assert mixed.var().item() == pytest.approx(mixup_variance(lam, rho), rel=0.01)


def test_mixup_loses_variance_at_every_lambda_inside_the_unit_interval():
    """variance, Proposition 1."""
    lam = torch.linspace(0, 1, 101)[1:-1]
    assert (mixup_variance(lam) < 1).all()
    assert mixup_variance(0.0) == mixup_variance(1.0) == 1


def test_mixup_of_equal_images_keeps_the_variance():
    assert mixup_variance(0.3, rho=1.0) == pytest.approx(1)


@pytest.mark.parametrize("alpha", [0.2, 0.4, 0.8, 1.0])
def test_mixups_mean_variance_is_that_of_timms_draws(alpha):
    np.random.seed(0)
    lam, _ = Mixup(mixup_alpha=alpha)._params_per_elem(100_000)
    assert mixup_variance(lam).mean() == pytest.approx(beta_mixup_variance(alpha), abs=0.005)
    assert beta_mixup_variance(alpha) == pytest.approx((alpha + 1) / (2 * alpha + 1))


def test_cutmix_of_images_with_unequal_means_gains_variance():
    """variance, Proposition 2."""
    first, second = torch.randn(2, 200_000)
    mixed = torch.cat([first[:60_000], 2 + second[60_000:]])
    assert mixed.var().item() == pytest.approx(cutmix_variance(0.7, 2.0, 1.0), rel=0.02)
    assert cutmix_variance(0.7, 0.0, 1.0) == 1


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.0), (-0.3, 0.5), (1.0, 2.0)])
@pytest.mark.parametrize("mode", ["pixel", "const"])
def test_erasing_has_the_variance_of_the_concatenation(mean, deviation, mode):
    """variance, Proposition 3."""
    generator = torch.Generator().manual_seed(0)
    image = mean + deviation * torch.randn(400_000, generator=generator)
    noise = torch.randn(100_000, generator=generator) if mode == "pixel" else torch.zeros(100_000)
    image[:100_000] = noise
    expected = erasing_variance(0.25, mean, deviation**2, power=float(mode == "pixel"))
    assert image.var().item() / deviation**2 == pytest.approx(expected, rel=0.01)


def test_one_value_for_a_whole_block_loses_the_variance_of_the_blocks_mean():
    """Mean over many draws of ``rand``: one normal value for each of three channels."""
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(2000, 3, 100, generator=generator)
    image[:, :, :40] = torch.randn(2000, 3, 1, generator=generator)
    within = image.flatten(1).var(1, correction=0).mean().item()
    assert within == pytest.approx(erasing_variance(0.4, 0.0, 1.0, 1.0, shared=1 / 3), rel=0.02)


def test_erasing_standardised_images_by_pixels_keeps_the_variance():
    """variance, Proposition 3."""
    for fraction in (0.02, 0.25, 1 / 3):
        assert erasing_variance(fraction, 0.0, 1.0, power=1.0) == pytest.approx(1)
        assert erasing_variance(fraction, 0.0, 1.0, power=0.0) < 1
        assert erasing_variance(fraction, -0.1, 0.27, power=1.0) > 1
