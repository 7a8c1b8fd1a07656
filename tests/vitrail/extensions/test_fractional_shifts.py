"""Shifts by fractions of a pixel are those of a trigonometric polynomial, and form a group."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vitrail.extensions.fractional_shifts import band_limited, fourier_shift

SIDES = pytest.mark.parametrize("side", [7, 8])


def noise(side, dtype=torch.float64):
    return torch.randn(2, 3, side, side + 3, dtype=dtype, generator=torch.manual_seed(side))


@SIDES
def test_a_wave_is_shifted_as_its_formula_says(side):
    places = torch.arange(side, dtype=torch.float64)
    wave = lambda o: torch.cos(2 * math.pi * 2 * (places + o) / side + 0.4)  # noqa: E731
    images = (wave(0)[:, None] * wave(0)).expand(1, 1, -1, -1)
    shifted = fourier_shift(images, torch.tensor([[0.3, -1.7]], dtype=torch.float64))
    torch.testing.assert_close(shifted[0, 0], wave(0.3)[:, None] * wave(-1.7))


@SIDES
@given(st.lists(st.floats(-9, 9), min_size=4, max_size=4))
def test_two_shifts_are_one_by_their_sum(side, offsets):
    first, second = torch.tensor(offsets, dtype=torch.float64).view(2, 1, 2).expand(2, 2, 2)
    images = noise(side)
    twice = fourier_shift(fourier_shift(images, first), second)
    torch.testing.assert_close(twice, fourier_shift(images, first + second))


@SIDES
def test_a_shift_by_whole_pixels_rolls_what_is_band_limited(side):
    images = band_limited(noise(side))
    shifted = fourier_shift(images, torch.tensor([[2, -3], [5, 1]]))
    expected = torch.stack([images[0].roll((-2, 3), (1, 2)), images[1].roll((-5, -1), (1, 2))])
    torch.testing.assert_close(shifted, expected)


def test_only_half_a_cycle_a_pixel_is_no_part_of_a_band_limited_image():
    alternating = torch.tensor([1.0, -1.0]).repeat(4)
    images = torch.ones(1, 1, 8, 8) + alternating + alternating[:, None]
    torch.testing.assert_close(band_limited(images), torch.ones(1, 1, 8, 8))
    odd = noise(7)[..., :7]
    torch.testing.assert_close(band_limited(odd), odd)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_shifted_image_keeps_its_dtype(dtype):
    assert fourier_shift(noise(8, torch.float32).to(dtype), torch.zeros(2, 2)).dtype == dtype
