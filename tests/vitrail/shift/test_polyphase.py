import pytest
import torch

from vitrail.shift.geometry import roll_image
from vitrail.shift.polyphase import (
    TIE_RTOL,
    break_ties,
    polyphase_energies,
    roll,
    sample,
    strongest,
    strongest_grid,
    tie_break_scores,
)

OFFSETS = torch.tensor([[0, 0], [1, 5], [7, 3], [-2, 9]])


def test_each_sample_of_tokens_is_rolled_by_its_own_offset():
    """shift, Sec. 3, Eq. 1."""
    x = torch.randn(4, 8, 12, 3)
    expected = [t.roll((-i, -j), (0, 1)) for t, (i, j) in zip(x, OFFSETS.tolist(), strict=True)]
    assert torch.equal(roll(x, OFFSETS), torch.stack(expected))


def test_each_image_is_rolled_by_its_own_offset():
    x = torch.randn(4, 3, 8, 12)
    expected = [t.roll((-i, -j), (1, 2)) for t, (i, j) in zip(x, OFFSETS.tolist(), strict=True)]
    assert torch.equal(roll_image(x, OFFSETS), torch.stack(expected))


@pytest.mark.parametrize("function", [roll, roll_image])
def test_the_gradient_of_a_roll_is_rolled_back(function):
    x = torch.randn(4, 8, 8, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, 8, 8, 8, dtype=torch.float64)
    (function(x, OFFSETS) * weight).sum().backward()
    assert torch.equal(x.grad, function(weight, -OFFSETS))


def test_the_strongest_is_the_first_maximum_in_reading_order():
    energies = torch.zeros(2, 3, 4)
    energies[0, 2, 1] = energies[1, 1, 3] = energies[1, 2, 0] = 5
    assert strongest(energies).tolist() == [[2, 1], [1, 3]]


def test_a_phase_has_the_energy_of_its_grid_however_the_sum_is_ordered():
    energies = torch.rand(2, 6, 8)
    table = polyphase_energies(energies, (3, 2))
    unit = energies.amax(dim=(1, 2)).double() / 2**40
    for row in range(3):
        for column in range(2):
            expected = energies[:, row::3, column::2].double().sum(dim=(1, 2))
            torch.testing.assert_close(table[:, row, column] * unit, expected, rtol=1e-6, atol=0)
    assert torch.equal(polyphase_energies(energies.roll((3, 2), (1, 2)), (3, 2)), table)


def test_sampling_keeps_the_grid_of_each_samples_phase():
    x = torch.randn(2, 4, 6, 3)
    sampled = sample(x, torch.tensor([[1, 0], [0, 1]]), 2)
    assert torch.equal(sampled, torch.stack([x[0, 1::2, 0::2], x[1, 0::2, 1::2]]))


def test_an_arrangement_is_that_of_all_circular_shifts():
    energies = torch.rand(2, 5, 8, dtype=torch.float64)
    template = tie_break_scores(torch.eye(40, dtype=torch.float64).view(40, 5, 8))[:, 0, 0].view(
        5, 8
    )
    for i in range(5):
        for j in range(8):
            expected = (energies.roll((-i, -j), (1, 2)) * template).sum(dim=(1, 2))
            torch.testing.assert_close(tie_break_scores(energies)[:, i, j], expected)


@pytest.mark.parametrize("case", [((0, 0, 1), (0, 1, 0)), ((0, 2), (2, 0))])
def test_grids_of_equal_tokens_are_told_apart_by_their_arrangement(case):
    """Four objects on a grid and, on another one, in places that these have not."""
    first, second = torch.zeros(8, 8), torch.zeros(8, 8)
    for grid, order in zip((first, second), case, strict=True):
        for place, value in enumerate(order):
            grid[2 * place, 3 * place**2 % 8] = 1.0 + value
    energies = torch.stack([first, second]).view(1, 1, 2, 8, 8)
    chosen = strongest_grid(energies)
    for shift in [(1, 0), (3, 5), (6, 7)]:
        assert torch.equal(strongest_grid(energies.roll(shift, (3, 4))), chosen)
        assert torch.equal(
            strongest_grid(energies.flip(2).roll(shift, (3, 4)))[:, 1], 1 - chosen[:, 1]
        )


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("second", "tied"), [(1, True), (1 - TIE_RTOL / 2, True), (1 - 2 * TIE_RTOL, False)]
)
def test_only_equal_scores_are_ordered_by_their_arrangement(second, tied, dtype):
    scores = torch.tensor([[[1, second]]], dtype=torch.float64)
    units = (scores * 2**42 if dtype == torch.int64 else scores).to(dtype)
    ties = torch.tensor([[[1.0, 2.0]]])
    assert strongest(break_ties(units, ties)).tolist() == [[0, int(tied)]]


def test_an_arrangement_is_not_rounded_where_products_of_float32_are():
    """As TensorFloat-32 and autocast round them."""
    energies = torch.rand(2, 8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        places = tie_break_scores(energies)
    torch.testing.assert_close(places, tie_break_scores(energies.double()), rtol=1e-12, atol=0)
