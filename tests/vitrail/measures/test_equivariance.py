"""The error of a matrix under permutations is the largest entry of a commutator's product."""

import math

import pytest
import torch
from torch import nn

from vitrail.errors import VitrailError
from vitrail.measures.equivariance import TOLERANCES, Group, equivariance_error

SHIFTS = Group(range(6), lambda x, k: x.roll(k, -1), lambda x, k: x.roll(k, -1))


def matrices():
    """The six cyclic permutations of six numbers."""
    eye = torch.eye(6, dtype=torch.float64)
    return [eye.roll(k, 0) for k in range(6)]


def linear(weight):
    layer = nn.Linear(6, 6, bias=False).double()
    layer.weight.data = weight
    return layer


def noise():
    return torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_any_matrix_errs_by_its_commutators():
    weight, x = torch.randn(6, 6, dtype=torch.float64), noise()
    commutators = [weight @ p - p @ weight for p in matrices()]
    expected = max((x @ commutator.T).abs().max().item() for commutator in commutators)
    assert expected > 0.1
    assert equivariance_error(linear(weight), x, SHIFTS).absolute == pytest.approx(
        expected, rel=1e-12
    )


def test_a_circulant_matrix_commutes():
    weight = sum(w * p for w, p in zip(torch.randn(6).double(), matrices(), strict=True))
    assert equivariance_error(linear(weight), noise(), SHIFTS).absolute < 1e-13


def test_without_an_action_on_the_output_it_is_to_be_invariant():
    x, on_input = noise(), SHIFTS.on_input
    assert equivariance_error(Summed(), x, Group(range(6), on_input)).absolute < 1e-13
    largest = max((x.roll(k, -1) - x).abs().max().item() for k in range(6))
    assert equivariance_error(nn.Identity(), x, Group(range(6), on_input)).absolute == largest


class Summed(nn.Module):
    def forward(self, x):
        return x.sum(-1)


def test_a_module_is_judged_in_evaluation_mode_and_each_part_left_as_it_was():
    model = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5).eval())
    assert equivariance_error(model, noise(), SHIFTS)[:2] == (0, 0)
    assert [part.training for part in model.modules()] == [True, True, False]


def test_a_group_without_elements_is_refused():
    with pytest.raises(VitrailError, match="the group has no elements"):
        equivariance_error(nn.Identity(), noise(), SHIFTS._replace(elements=[]))


def test_outputs_of_other_shapes_are_told_in_a_sentence():
    group = Group(["half"], lambda x, _: x[..., :3])
    model = nn.Dropout()
    with pytest.raises(VitrailError, match=r"element half .* \(3, 3\).* \(3, 6\); give the group"):
        equivariance_error(model, noise(), group)
    assert model.training


def test_an_error_that_is_no_number_is_not_hidden():
    group = Group((0, 1), on_input=lambda x, shift: x / (1 - shift) * (1 - shift))
    assert math.isnan(equivariance_error(nn.Identity(), torch.randn(1, 3), group).absolute)


class Offset(nn.Module):
    """Add to the output a part of its largest entry in one place, which no shift moves along."""

    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, x):
        y = x.clone()
        y[..., 0] += self.part * x.abs().max()
        return y


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_the_relative_error_is_compared_with_the_tolerance_of_the_precision(dtype):
    x = noise().to(dtype)
    small, large = (Offset(TOLERANCES[dtype] * part) for part in (0.2, 3))
    assert equivariance_error(nn.Identity(), x, SHIFTS) == (0, 0, TOLERANCES[dtype])
    assert equivariance_error(small, x, SHIFTS).within
    assert not equivariance_error(large, x, SHIFTS).within


def test_the_relative_error_does_not_depend_on_the_unit():
    error = equivariance_error(Offset(0.1), noise(), SHIFTS)
    in_thousands = equivariance_error(Offset(0.1), noise() / 1000, SHIFTS)
    assert error.relative == pytest.approx(in_thousands.relative)
    assert error.absolute == pytest.approx(1000 * in_thousands.absolute)
