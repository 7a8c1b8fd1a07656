"""Each image is shifted, cut and erased by its own draw."""

import itertools

import torch
from hypothesis import given
from hypothesis import strategies as st

from vitrail.measures.shifts import (
    circular_shift,
    crop,
    erase_square,
    integers,
    zero_padded_shift,
)


def images(batch=3, height=5, width=7):
    return torch.arange(batch * 2 * height * width).reshape(batch, 2, height, width).double()


offset_batches = st.lists(st.tuples(st.integers(-20, 20), st.integers(-20, 20)), min_size=3)


@given(offset_batches)
def test_a_circular_shift_moves_each_image_by_its_own_offset(offsets):
    """shift, Eq. 1."""
    x, offsets = images(), offsets[:3]
    shifted = circular_shift(x, torch.tensor(offsets))
    for b, (rows, columns) in enumerate(offsets):
        for i, j in itertools.product(range(5), range(7)):
            assert torch.equal(shifted[b, :, i, j], x[b, :, (i + rows) % 5, (j + columns) % 7])


@given(offset_batches)
def test_a_zero_padded_shift_is_black_where_the_image_ends(offsets):
    x, offsets, black = images(), offsets[:3], torch.tensor([-1.0, -2.0])
    shifted = zero_padded_shift(x, torch.tensor(offsets), black)
    for b, (rows, columns) in enumerate(offsets):
        for i, j in itertools.product(range(5), range(7)):
            inside = 0 <= i + rows < 5 and 0 <= j + columns < 7
            expected = x[b, :, i + rows, j + columns] if inside else black.double()
            assert torch.equal(shifted[b, :, i, j], expected)


def test_erasing_sets_exactly_the_square_to_zero():
    """shift, Sec. A5.1."""
    ones = torch.ones(3, 2, 5, 7)
    erased = erase_square(ones, torch.tensor([[0, 0], [2, 4], [1, 1]]), torch.tensor([5, 3, 0]))
    expected = ones.clone()
    expected[0, :, :5, :5] = 0
    expected[1, :, 2:5, 4:7] = 0
    assert torch.equal(erased, expected)


def test_a_crop_is_the_square_at_its_corner():
    x = images(2)
    cut = crop(x, torch.tensor([[0, 4], [2, 1]]), 3)
    assert torch.equal(cut, torch.stack([x[0, :, :3, 4:7], x[1, :, 2:5, 1:4]]))


def test_integers_reach_both_ends_equally_often():
    uniform = torch.arange(0, 1, 1 / 600, dtype=torch.float64)
    assert integers(uniform, 5).bincount().tolist() == [100] * 6
    assert integers(torch.tensor(1 - 2**-53, dtype=torch.float64), 224) == 224
