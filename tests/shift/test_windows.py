import pytest
import torch

from vitrine.shift.polyphase import roll
from vitrine.shift.windows import window_energies, window_offset


def tokens(height=12, width=8, batch=3):
    torch.manual_seed(0)
    return torch.randn(batch, height, width, 5, dtype=torch.float64)


def test_the_energy_of_a_window_is_the_mean_norm_of_its_tokens():
    x = tokens()
    energies = window_energies(x, (3, 4))
    for row in range(12):
        for column in range(8):
            window = x.roll((-row, -column), (1, 2))[:, :3, :4]
            expected = window.norm(dim=-1).mean(dim=(1, 2))
            torch.testing.assert_close(energies[:, row, column], expected)


def test_the_grid_of_windows_with_the_largest_l2_norm_wins():
    x = tokens()
    energies = window_energies(x, (3, 4))
    best = [
        max(
            ((row, column) for row in range(3) for column in range(4)),
            key=lambda m, b=b: energies[b, m[0] :: 3, m[1] :: 4].square().sum().item(),
        )
        for b in range(3)
    ]
    assert window_offset(x, (3, 4)).tolist() == [list(m) for m in best]


@pytest.mark.parametrize(("window", "modulo"), [((3, 4), None), ((3, 2), (6, 4)), ((12, 4), None)])
def test_windows_hold_the_same_tokens_after_any_shift(window, modulo):
    x = tokens()
    grid = torch.tensor(window if modulo is None else modulo)
    offset = window_offset(x, window, modulo)
    for shift in [(1, 1), (5, 2), (11, 7)]:
        moved = window_offset(x.roll((-shift[0], -shift[1]), (1, 2)), window, modulo)
        assert ((moved + torch.tensor(shift) - offset) % grid == 0).all()


def test_a_single_window_is_anchored_at_its_strongest_token():
    x = tokens(height=4, width=8)
    x[1, 2, 5] *= 100
    offset = window_offset(x, (4, 8))
    assert offset[1].tolist() == [2, 5]
    rolled = roll(x, offset).norm(dim=-1)
    assert (rolled[:, 0, 0] == rolled.amax(dim=(1, 2))).all()


def test_a_box_that_covers_an_axis_would_leave_a_tie():
    energies = window_energies(tokens(height=4), (4, 2))
    torch.testing.assert_close(energies, energies[:, :1].expand_as(energies))


def test_a_uniform_background_does_not_decide():
    """Its windows tie, and are the strongest: the object must decide."""
    x = torch.full((1, 12, 12, 2), 3.0, dtype=torch.float64)
    torch.manual_seed(0)
    x[:, 4:7, 5:8] = torch.randn(1, 3, 3, 2, dtype=torch.float64)
    offset = window_offset(x, (3, 3))
    for shift in [(1, 0), (2, 1), (7, 5)]:
        moved = window_offset(x.roll((-shift[0], -shift[1]), (1, 2)), (3, 3))
        assert ((moved + torch.tensor(shift) - offset) % 3 == 0).all()
