import math

import pytest
import torch

from vitrail.octic.group import (
    ELEMENTS,
    FOURIER,
    INVERSE_FOURIER,
    IRREPS,
    SCALE,
    fourier,
    inverse_fourier,
    irrep,
    isotypic,
    regular,
    transform,
)


def assert_equal(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=1e-14)


def table():
    """Which element the product of two is, read off the images of a 3 x 3 square."""
    image = torch.arange(9).view(3, 3)
    images = {g: transform(image, g) for g in ELEMENTS}
    return {
        (g, h): next(k for k in ELEMENTS if torch.equal(images[k], transform(images[h], g)))
        for g in ELEMENTS
        for h in ELEMENTS
    }


def test_the_eight_elements_differ_and_are_closed():
    """octic, Sec. 3.1."""
    products = table()
    assert all({products[g, h] for h in ELEMENTS} == set(ELEMENTS) for g in ELEMENTS)


@pytest.mark.parametrize("name", [*IRREPS, "isotypic", "regular"])
def test_a_representation_multiplies_as_the_images_do(name):
    """octic, Sec. 3.1, Example 3.4."""
    whole = {"isotypic": isotypic, "regular": regular}
    matrix = whole.get(name, lambda g: irrep(name, g))
    for (g, h), product in table().items():
        assert_equal(matrix(g) @ matrix(h), matrix(product))


def test_mr_turns_first():
    image = torch.arange(4).view(2, 2)
    assert torch.equal(transform(image, "mr"), image.rot90(1, (-2, -1)).flip(-1))


def test_the_irreps_are_those_of_the_paper():
    """octic, Eq. 1, Example 3.1."""
    assert [irrep(name, g).item() for name in ("A2", "B1", "B2") for g in "rm"] == [
        *(1, -1),
        *(-1, 1),
        *(-1, -1),
    ]
    assert irrep("E", "r").tolist() == [[0, -1], [1, 0]]
    assert irrep("E", "m").tolist() == [[-1, 0], [0, 1]]


def test_the_regular_representation_permutes_as_stated():
    """octic, Eq. 3-4, Example 3.2."""
    y = torch.arange(8, dtype=torch.float64)
    assert (regular("r") @ y).tolist() == [1, 2, 3, 0, 7, 4, 5, 6]
    assert (regular("m") @ y).tolist() == [4, 5, 6, 7, 0, 1, 2, 3]


def test_the_fourier_transform_is_orthogonal_and_block_diagonalises(element):
    """octic, Eq. 2, Eq. 5, Example 3.3."""
    assert_equal(FOURIER @ INVERSE_FOURIER, torch.eye(8, dtype=torch.float64))
    assert_equal(FOURIER @ regular(element) @ FOURIER.T, isotypic(element))


def test_the_inverse_transform_is_the_one_stated():
    """octic, App. A.1, Eq. 11."""
    x = torch.randn(8, dtype=torch.float64)
    a, b, c, d = x[0] + x[1], x[0] - x[1], x[2] + x[3], x[2] - x[3]
    e, f, g, h = x[4] + x[5], x[4] - x[5], x[6] + x[7], x[6] - x[7]
    stated = {
        0: (a + c) + (e + h),
        2: (a + c) - (e + h),
        1: (a - c) + (f - g),
        3: (a - c) - (f - g),
        6: (b + d) + (f + g),
        4: (b + d) - (f + g),
        7: (b - d) + (e - h),
        5: (b - d) - (e - h),
    }
    y = INVERSE_FOURIER @ x
    for index, value in stated.items():
        assert_equal(y[index], value / (2 * math.sqrt(2)))


def test_the_fast_transforms_are_the_matrices():
    """octic, App. A.1."""
    x = torch.randn(8, 3, dtype=torch.float64)
    assert_equal(SCALE * torch.stack(inverse_fourier(x.unbind())), INVERSE_FOURIER @ x)
    assert_equal(SCALE * torch.stack(fourier(x.unbind())), FOURIER @ x)
