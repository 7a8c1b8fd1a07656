import pytest
import torch

from vitrail.variance.upsampling import (
    axis_variance_ratio,
    sampled_variance_ratio,
    upsample,
    variance_ratio,
    weight_matrix,
)

MODES = ["nearest", "bilinear", "bicubic"]


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sizes", [((14, 14), (28, 28)), ((7, 5), (11, 16)), ((12, 9), (5, 9))])
def test_interpolating_a_plane_is_multiplying_by_the_weights_of_both_axes(mode, antialias, sizes):
    old, new = sizes
    plane = torch.randn(2, 3, *old, dtype=torch.float64)
    rows, columns = (weight_matrix(o, n, mode, antialias) for o, n in zip(old, new, strict=True))
    torch.testing.assert_close(upsample(plane, new, mode, antialias), rows @ plane @ columns.T)


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_interpolation_keeps_a_constant(mode, antialias):
    """variance, Theorem 1."""
    weights = weight_matrix(14, 37, mode, antialias)
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(37, dtype=torch.float64))


def test_nearest_neighbour_copies_whatever_the_rate():
    """variance, Theorem 1."""
    for new in (14, 15, 29, 54):
        weights = weight_matrix(14, new, "nearest")
        assert ((weights == 0) | (weights == 1)).all()
        assert axis_variance_ratio(14, new, "nearest") == 1


@pytest.mark.parametrize("old", [4, 14, 224])
def test_doubling_bilinearly_has_its_closed_form_with_borders(old):
    expected = 5 / 8 + 3 / (8 * old)
    assert axis_variance_ratio(old, 2 * old, "bilinear") == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("rate", [2, 3, 4, 5, 8, 9])
def test_the_ratio_depends_on_the_upsampling_rate(rate):
    """Interior of an integer rate s: 2/3 - 1/(6 s^2) if s is even, 2/3 + 1/(3 s^2) if odd."""
    weights = weight_matrix(20, 20 * rate, "bilinear")
    interior = weights[5 * rate : 15 * rate].square().sum(dim=1).mean().item()
    expected = 2 / 3 + (1 / (3 * rate**2) if rate % 2 else -1 / (6 * rate**2))
    assert interior == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("antialias", "a"), [(False, -0.75), (True, -0.5)])
def test_bicubic_at_many_phases_is_the_integral_over_the_phase(antialias, a):
    """Mean of the squared cubic convolution kernel: (4 a^2 - 13 a + 78) / 105, so 6/7 or 57/70."""
    rate = 64
    weights = weight_matrix(20, 20 * rate, "bicubic", antialias)
    interior = weights[5 * rate : 15 * rate].square().sum(dim=1).mean().item()
    assert interior == pytest.approx((4 * a**2 - 13 * a + 78) / 105, abs=2e-4)


def test_antialiasing_changes_the_bicubic_kernel_and_its_ratio():
    assert variance_ratio((224, 224), (448, 448)) == pytest.approx(0.7295, abs=5e-5)
    assert variance_ratio((224, 224), (448, 448), antialias=True) == pytest.approx(0.656, abs=5e-4)
    assert variance_ratio((14, 14), (54, 54), antialias=True) == pytest.approx(0.691, abs=5e-4)


@pytest.mark.parametrize("mode", MODES)
def test_sampled_noise_agrees_with_the_exact_ratio(mode):
    """variance, Theorem 1."""
    generator = torch.Generator().manual_seed(0)
    for new in ((112, 112), (112, 56)):
        sampled = sampled_variance_ratio((56, 56), new, mode, maps=40, generator=generator)
        assert sampled == pytest.approx(variance_ratio((56, 56), new, mode), rel=0.01)


def test_one_axis_of_two_loses_the_ratio_of_one_axis():
    one_axis = axis_variance_ratio(224, 448)
    assert variance_ratio((224, 224), (224, 448)) == pytest.approx(one_axis)
    assert variance_ratio((224, 224), (448, 448)) == pytest.approx(one_axis**2)
