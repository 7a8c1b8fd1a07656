import pytest
import torch

from vitrine.shift.polyphase import (
    polyphase_energies,
    roll,
    roll_image,
    sample,
    strongest,
    token_norms,
)

OFFSETS = torch.tensor([[0, 0], [1, 5], [7, 3], [-2, 9]])


def test_each_sample_of_tokens_is_rolled_by_its_own_offset():
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


def test_a_phase_has_the_energy_of_its_grid():
    energies = torch.rand(2, 6, 8)
    table = polyphase_energies(energies, (3, 2))
    assert table.dtype == torch.float64
    for row in range(3):
        for column in range(2):
            expected = energies[:, row::3, column::2].double().sum(dim=(1, 2))
            torch.testing.assert_close(table[:, row, column], expected)


def test_sampling_keeps_the_grid_of_each_samples_phase():
    x = torch.randn(2, 4, 6, 3)
    sampled = sample(x, torch.tensor([[1, 0], [0, 1]]), 2)
    assert torch.equal(sampled, torch.stack([x[0, 1::2, 0::2], x[1, 0::2, 1::2]]))


def test_norms_are_summed_in_double_precision():
    tokens = torch.full((1, 1, 1, 4), 1e-4)
    tokens[..., 0] = 1e4  # in float32 the small ones would vanish
    exact = tokens.double().square().sum(dim=-1)
    torch.testing.assert_close(token_norms(tokens).square(), exact, rtol=1e-15, atol=0)
