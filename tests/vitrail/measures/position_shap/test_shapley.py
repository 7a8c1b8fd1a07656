import numpy as np
import pytest
import torch

from tests.vitrail.measures.position_shap.models import mean_share, population, uniform
from vitrail.measures.position_shap.shapley import (
    QUANTILE,
    PositionShap,
    debias,
    estimate,
    explain,
    interaction,
    position_share,
    shapley,
)


def test_shapley_values_are_means_over_both_orders_of_arrival():
    """position, Sec. 3, Eq. 4-5."""
    both, image, position, none = torch.randn(4, 50, generator=torch.Generator().manual_seed(0))
    phi_position, phi_image = shapley(both, image, position, none)
    torch.testing.assert_close(phi_position + phi_image, both - none)
    torch.testing.assert_close(phi_position, ((position - none) + (both - image)) / 2)
    share = position_share(torch.tensor([0.0, -1, 2, 0]), torch.tensor([0.0, 3, -2, 1]))
    assert share.tolist() == [0, 0.25, 0.5, 0]


def test_position_and_image_interact_where_their_values_do_not_add_up():
    """Of a sum g + h nothing, of a product what both have above their means."""
    image, position = torch.randn(2, 50, 7, generator=torch.Generator().manual_seed(0)).double()
    own, means = (image[:, 0], position[:, 0]), (image.mean(1), position.mean(1))
    for join, expected in (
        (torch.add, torch.zeros(50)),
        (torch.mul, (own[0] - means[0]) * (own[1] - means[1])),
    ):
        both, none = join(*own), join(*means)  # backgrounds are independent: means multiply
        found = interaction(both, join(own[0], means[1]), join(means[0], own[1]), none)
        torch.testing.assert_close(found, expected.double(), rtol=0, atol=1e-12)


def test_the_interaction_of_a_model_is_relative_to_what_is_shared():
    phi, right = torch.tensor([[1.0, -3.0, 9.0], [2.0, 2.0, 9.0]]), torch.tensor([1, 1, 0]).bool()
    together = torch.tensor([2.0, -6.0, 9.0])
    result = PositionShap(torch.arange(3), *phi, together, phi[0], right, None, 5, 1.0)
    assert result.mean_interaction == pytest.approx((2 - 6) / (1 + 2 + 3 + 2))


def test_a_sample_is_not_in_its_own_background():
    """position, Eq. 3-4: v(P) and v(0) average over all other samples."""
    clean, permuted, classes = population(9, torch.Generator().manual_seed(3))
    phi_position, phi_image = explain(clean, permuted, classes, uniform(9))
    for sample, label in enumerate(classes.tolist()):
        others = [index for index in range(9) if index != sample]
        expected = shapley(
            clean[sample, label],
            permuted[sample, label],
            clean[others, label].mean(),
            permuted[others, label].mean(),
        )
        found = phi_position[sample], phi_image[sample]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_weights_count_as_repeated_samples():
    clean, permuted, classes = population(30, torch.Generator().manual_seed(1))
    times = torch.randint(4, (30,), generator=torch.Generator().manual_seed(2))
    *_, shares = debias(clean, [permuted], classes, times / times.sum().double())
    for sample in range(30):
        others = torch.arange(30).repeat_interleave(times)
        others = others[others != sample]
        label = classes[sample]
        expected = position_share(
            *shapley(
                clean[sample, label],
                permuted[sample, label],
                clean[others, label].mean(),
                permuted[others, label].mean(),
            )
        )
        assert shares[sample].item() == pytest.approx(expected.item(), abs=1e-12)


def test_halves_of_the_permutations_take_out_what_falls_as_one_over_k():
    """S + b / K becomes S."""
    clean, permuted, classes = population(50, torch.Generator().manual_seed(4))
    halves = [permuted, permuted + 0.3 * torch.randn(50, 3, dtype=torch.float64)]
    shares = [
        position_share(*explain(clean, logits, classes, uniform(50)))
        for logits in (sum(halves) / 2, *halves)
    ]
    expected = 2 * shares[0] - (shares[1] + shares[2]) / 2
    *_, found = debias(clean, halves, classes, uniform(50))
    torch.testing.assert_close(found, expected)


def estimated(clean, permuted, classes):
    """Estimate P-SHAP of logits as they are, and averaged over all permutations."""
    logits = torch.stack([clean, permuted], dim=1)
    return estimate(torch.arange(len(clean)), classes, logits, passes=2, speed=1.0)


def test_a_mean_over_few_samples_is_not_too_high():
    """Each sample's background is the others, so a small n does not bias the mean."""
    generator = torch.Generator().manual_seed(0)
    clean, permuted, classes = population(10_000, generator)
    truth = mean_share(clean, permuted, classes)
    found = []
    for drawn in torch.randperm(10_000, generator=generator).split(8):
        result = estimated(clean[drawn], permuted[drawn], classes[drawn])
        found += [result.raw_mean] if result.correct.any() else []
    assert np.mean(found) == pytest.approx(truth, abs=0.01)


@pytest.mark.parametrize("count", [60, pytest.param(599, marks=pytest.mark.slow)])
def test_the_interval_covers_as_often_as_it_says(count):
    generator = torch.Generator().manual_seed(0)
    truth = mean_share(*population(400_000, generator))
    covered = []
    for _ in range(600):
        result = estimated(*population(count, generator))
        covered.append(abs(result.raw_mean - truth) <= result.half_width)
    assert 0.93 <= np.mean(covered) <= 0.97


def test_the_half_width_is_the_bootstraps():
    """Samples drawn anew, with replacement, draw their share in the background too."""
    clean, permuted, classes = population(200, torch.Generator().manual_seed(1))
    right = clean.argmax(dim=1) == classes
    generator = torch.Generator().manual_seed(5)
    means = []
    for _ in range(2000):
        drawn = torch.randint(200, (200,), generator=generator)
        weights = torch.bincount(drawn, minlength=200) / 200
        *_, shares = debias(clean, [permuted], classes, weights.double())
        means.append((weights * right * shares).sum() / (weights * right).sum())
    expected = QUANTILE * torch.stack(means).std().item()
    found = estimated(clean, permuted, classes).half_width
    assert found == pytest.approx(expected, rel=0.05)


def test_what_is_reported_lies_between_0_and_1():
    zeros, right = torch.zeros(2, dtype=torch.float64), torch.tensor([True, True])
    for raw, mean in ((-0.01, 0), (1.02, 1), (0.4, 0.4)):
        debiased = torch.full((2,), raw, dtype=torch.float64)
        result = PositionShap(torch.arange(2), zeros, zeros, zeros, debiased, right, 0.7, 5, 1.0)
        assert result.mean == pytest.approx(mean)
        assert result.raw_mean == pytest.approx(raw)
        low, high = result.interval
        assert 0 <= low <= result.mean <= high <= 1
