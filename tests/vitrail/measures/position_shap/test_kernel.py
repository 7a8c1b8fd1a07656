"""Kernel SHAP by its regression is the Shapley value, and when values of parts add up."""

import itertools
import math

import pytest
import torch

from vitrail.errors import VitrailError
from vitrail.measures.position_shap.kernel import kernel_shap
from vitrail.measures.position_shap.shapley import shapley


def drawn(features, seed=0):
    """A response that is a random number for every coalition."""
    numbers = torch.randn(2**features, generator=torch.Generator().manual_seed(seed)).double()
    return lambda coalitions: numbers[coalitions.long() @ 2 ** torch.arange(features)]


def by_orders(response, features):
    """Shapley values by their definition: means over all orders in which features are added."""
    values = torch.zeros(features, dtype=torch.float64)
    for order in itertools.permutations(range(features)):
        there = torch.zeros(1, features, dtype=torch.bool)
        for feature in order:
            before = response(there).item()
            there[0, feature] = True
            values[feature] += response(there).item() - before
    return values / math.factorial(features)


def sums(response, cut):
    """The values of the first `cut` features and of the others, each summed; and of two groups."""

    def grouped(coalitions):
        return response(coalitions.repeat_interleave(torch.tensor([cut, 5 - cut]), dim=1))

    apart = kernel_shap(response, 5)
    return torch.stack([apart[:cut].sum(), apart[cut:].sum()]), kernel_shap(grouped, 2)


@pytest.mark.parametrize("features", [2, 3, 6])
def test_the_regression_gives_shapley_values(features):
    """position, Eq. 3, Eq. 7-8."""
    response = drawn(features)
    expected = by_orders(response, features)
    torch.testing.assert_close(kernel_shap(response, features), expected, rtol=0, atol=1e-10)


def test_of_two_features_it_is_the_closed_form():
    """position, Eq. 4."""
    response = drawn(2)
    none, second, first, both = response(torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]).bool())
    expected = torch.stack(shapley(both, second, first, none))
    torch.testing.assert_close(kernel_shap(response, 2), expected, rtol=0, atol=1e-10)


def test_values_of_members_add_up_to_the_groups_where_features_join_in_pairs_at_most():
    """position, Sec. 3: also a pair across the groups is halved in both games."""
    generator = torch.Generator().manual_seed(1)
    alone, pairs = torch.randn(5, generator=generator), torch.randn(5, 5, generator=generator)

    def response(coalitions):
        there = coalitions.double()
        return there @ alone.double() + (there @ pairs.double() * there).sum(dim=1)

    for cut in range(1, 5):
        summed, of_groups = sums(response, cut)
        torch.testing.assert_close(summed, of_groups, rtol=0, atol=1e-10)


def test_of_three_that_work_together_only_the_larger_group_gets_more_by_its_members():
    """Two features of one group and one of the other: two thirds by members, half by groups."""
    summed, of_groups = sums(lambda coalitions: coalitions[:, 1:4].all(dim=1).double(), 3)
    assert summed.tolist() == pytest.approx([2 / 3, 1 / 3])
    assert of_groups.tolist() == pytest.approx([1 / 2, 1 / 2])


def test_a_single_feature_is_refused():
    with pytest.raises(VitrailError, match="at least 2"):
        kernel_shap(drawn(1), 1)
