import pytest
import torch

from vitrail.errors import VitrailError
from vitrail.shift.polyphase import roll
from vitrail.shift.selection import require_windows, window_energies, window_offset


def tokens(height=12, width=8, batch=3):
    torch.manual_seed(0)
    return torch.randn(batch, height, width, 5, dtype=torch.float64)


def test_the_energy_of_a_window_is_the_mean_norm_of_its_tokens():
    """shift, Eq. 17-18."""
    x = tokens()
    energies, largest = window_energies(x, (3, 4)), x.norm(dim=-1).amax(dim=(1, 2))
    for row in range(12):
        for column in range(8):
            norms = x.roll((-row, -column), (1, 2))[:, :3, :4].norm(dim=-1)
            expected = norms.mean(dim=(1, 2)) / largest  # Eq. 18
            torch.testing.assert_close(energies[:, row, column], expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize("window", [(3, 4), (12, 8), (1, 1)])
def test_an_anchored_offset_puts_shifted_tokens_into_the_same_order(window):
    x = tokens()
    offset = window_offset(x, window, anchored=True)
    assert torch.equal(offset % torch.tensor(window), window_offset(x, window))
    shift = torch.tensor([[1, 1], [5, 2], [11, 7]])
    moved = roll(x, shift)
    again = roll(moved, window_offset(moved, window, anchored=True))
    assert torch.equal(again, roll(x, offset))


def test_the_grid_of_windows_with_the_largest_l2_norm_wins():
    """shift, Eq. 20."""
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


@pytest.mark.parametrize("window", [(3, 4), (6, 4), (12, 4), (4, 8), (12, 8)])
def test_windows_hold_the_same_tokens_after_any_shift(window):
    """shift, Claim 2, Eq. 19."""
    x = tokens()
    offset = window_offset(x, window)
    for shift in [(1, 1), (5, 2), (11, 7)]:
        moved = window_offset(x.roll((-shift[0], -shift[1]), (1, 2)), window)
        assert ((moved + torch.tensor(shift) - offset) % torch.tensor(window) == 0).all()


@pytest.mark.parametrize("background", [3.0, 0.0, -1.0])
@pytest.mark.parametrize("side", [1, 2, 3, 5])
@pytest.mark.parametrize("window", [(4, 4), (6, 4), (12, 4), (12, 8)])
def test_an_object_on_a_uniform_background_decides_where_windows_go(window, side, background):
    """Windows of the background tie, and so do all those that the object lies inside."""
    torch.manual_seed(0)
    x = torch.full((16, 12, 8, 2), background, dtype=torch.float64)
    x[:, 4 : 4 + side, 2 : 2 + side] = torch.randn(16, side, side, 2, dtype=torch.float64)
    offset = window_offset(x, window)
    for shift in [(1, 0), (2, 1), (7, 5)]:
        moved = window_offset(x.roll((-shift[0], -shift[1]), (1, 2)), window)
        assert ((moved + torch.tensor(shift) - offset) % torch.tensor(window) == 0).all()


def test_the_multiples_that_a_refusal_names_are_the_smallest_that_fit():
    """Windows of stages may differ, as in timm's swin_s3_base_224."""
    strides, windows = (4, 8, 16, 32), [(7, 7), (7, 7), (14, 14), (7, 7)]
    with pytest.raises(VitrailError, match="use multiples of 224x224 pixels"):
        require_windows((200, 224), strides, windows)
    require_windows((224, 448), strides, windows)
