import pytest
import torch

from vitrine.segmentation.pooling import anchor, box_means
from vitrine.shift.polyphase import roll_image


def noise(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


SHIFT = torch.tensor([[0, 0], [3, 5], [6, 1]])


def test_the_anchor_moves_with_the_map():
    x = noise(3, 4, 7, 6)
    moved = anchor(roll_image(x, SHIFT))
    assert torch.equal(moved, (anchor(x) - SHIFT) % torch.tensor([7, 6]))


def test_the_anchor_needs_no_differences_of_l2_norms():
    """The norm at the end of a stage leaves none."""
    x = torch.nn.functional.normalize(noise(3, 64, 8, 8), dim=1)
    assert torch.equal(anchor(roll_image(x, SHIFT)), (anchor(x) - SHIFT) % 8)


@pytest.mark.parametrize("level", [0.0, 5.0])
def test_tokens_of_a_uniform_background_do_not_decide_the_anchor(level):
    x = torch.full((3, 2, 9, 9), level, dtype=torch.float64)
    x[:, :, 2:4, 5:7] = noise(3, 2, 2, 2)
    assert torch.equal(anchor(roll_image(x, SHIFT)), (anchor(x) - SHIFT) % 9)


@pytest.mark.parametrize("bins", [1, 2, 3, 6])
def test_box_means_are_means_of_a_bins_size_around_each_token(bins):
    x = noise(1, 1, 6, 12)
    rows, columns = 6 // bins, 12 // bins
    means = box_means(x, bins)
    i, j = 4, 11
    around_i = [(i - (rows - 1) // 2 + k) % 6 for k in range(rows)]
    around_j = [(j - (columns - 1) // 2 + k) % 12 for k in range(columns)]
    expected = x[0, 0][around_i][:, around_j].mean()
    torch.testing.assert_close(means[0, 0, i, j], expected)
    assert means.shape == x.shape


@pytest.mark.parametrize("bins", [1, 2, 3, 6])
def test_box_means_move_with_the_map(bins):
    x = noise(3, 2, 7, 5)  # bins that do not divide the map, and more of them than tokens
    shifted = box_means(roll_image(x, SHIFT), bins)
    torch.testing.assert_close(shifted, roll_image(box_means(x, bins), SHIFT))
