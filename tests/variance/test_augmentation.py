import numpy as np
import pytest
import torch
from timm.data import Mixup

from vitrine.variance.augmentation import (
    beta_mixup_variance,
    cutmix_variance,
    erasing_variance,
    mixup_variance,
)


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
