import pytest
import torch
from torch import nn

from vitrail.octic.group import isotypic, on_planes
from vitrail.octic.invariants import INVARIANTS, invariance_error

CHANNELS = 3
WIDTHS = {  # M at c = 3, C = 24
    "linear": 3,
    "linear_absolute": 3,
    "power_spectrum": 18,
    "triple_correlation": 45,
    "polynomial": 96,
    "max_filtering": 48,
    "canonisation": 24,
}


def features(tokens=5):
    return torch.randn(8, 2, tokens, CHANNELS, dtype=torch.float64)


@pytest.mark.parametrize("name", WIDTHS)
def test_invariants_do_not_see_the_group(name, element, scrambled):
    """octic, App. D, Eq. 12-17."""
    invariant = scrambled(INVARIANTS[name](8 * CHANNELS))
    x = features()
    y = invariant(x)
    assert y.shape == (2, 5, WIDTHS[name])
    assert invariant.out_features == WIDTHS[name]
    turned = invariant(on_planes(isotypic(element), x))
    torch.testing.assert_close(turned, y, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", WIDTHS)
def test_invariants_see_more_than_the_length(name, scrambled):
    invariant = scrambled(INVARIANTS[name](8 * CHANNELS))
    x = features()
    shuffled = x[torch.tensor([1, 0, 3, 2, 4, 6, 5, 7])]
    assert (invariant(x) - invariant(shuffled)).abs().amax() > 0.1


def test_the_six_and_the_published_linear_one_are_all():
    assert set(INVARIANTS) == set(WIDTHS)


def test_the_linear_invariant_is_a1_with_its_sign():
    """octic, Eq. 12."""
    linear, x = INVARIANTS["linear"](8 * CHANNELS), features()
    torch.testing.assert_close(linear(x), x[0], rtol=0, atol=0)
    assert not torch.allclose(linear(-x), linear(x))


def test_the_published_code_takes_the_absolute_value_of_a1():
    absolute, x = INVARIANTS["linear_absolute"](8 * CHANNELS), features()
    torch.testing.assert_close(absolute(x), x[0].abs(), rtol=0, atol=0)


@pytest.mark.parametrize(("name", "count"), [("triple_correlation", 15), ("polynomial", 32)])
def test_polynomials_are_linearly_independent(name, count):
    """octic, Eq. 13, Eq. 15."""
    y = INVARIANTS[name](8)(torch.randn(8, 200, 1, dtype=torch.float64))
    assert torch.linalg.matrix_rank(y / y.norm(dim=0)) == count


def test_polynomials_stand_in_the_order_of_the_published_code():
    """Worked out by hand for x0 = 1 to x7 = 8 from Appendix D."""
    x = torch.arange(1.0, 9).view(8, 1, 1)
    quadratics, cubics = [113, 83, 61, 16, 9, 4], [224, 328, 120, -45, -39, -33, 4, 24]
    quartics = [6497, 4787, 3529, 2603, 1921, 24, -120, -104, -88, 336, 492, 180]
    quintics = [-1680, -1004, -900, -780, -660]
    of_degree_three = INVARIANTS["triple_correlation"](8)(x).flatten().tolist()
    assert of_degree_three == [1, *quadratics, *cubics]
    generators = INVARIANTS["polynomial"](8)(x).flatten().tolist()
    assert generators == [1, *quadratics, *cubics, *quartics, *quintics]


def test_the_power_spectrum_is_the_norm_of_each_irrep():
    """octic, Eq. 14."""
    x = torch.tensor([-2.0, -3, 4, -5, 3, 4, 6, -8]).view(8, 1, 1)
    spectrum = INVARIANTS["power_spectrum"](8)(x)
    torch.testing.assert_close(spectrum, torch.tensor([[-2.0, 3, 4, 5, 5, 10]]))


def test_the_power_spectrum_has_a_gradient_at_zero():
    x = torch.zeros(8, 1, 1, requires_grad=True)
    INVARIANTS["power_spectrum"](8)(x).sum().backward()
    assert x.grad.isfinite().all()


def of_the_published_code():
    """The eight matrices by which the authors' code acts on A1, A2, B1, B2 and two copies of E.

    Source: octic_vits/d8_invariantization.py, MaxFilteringInvariant and CanonizationInvariant.
    """
    quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    rotation = torch.block_diag(torch.diag(torch.tensor([1.0, 1, -1, -1])), quarter, quarter)
    mirror = torch.diag(torch.tensor([1.0, -1, 1, -1, -1, 1, -1, 1]))
    turns = [torch.linalg.matrix_power(rotation, k) for k in range(4)]
    return [matrix.double() for matrix in (*turns, *(mirror @ turn for turn in turns))]


def test_max_filtering_follows_the_rule_of_the_published_code(scrambled):
    """octic, Eq. 16."""
    invariant = scrambled(INVARIANTS["max_filtering"](8 * CHANNELS))
    x, found = features(), []
    for reference in invariant.references.detach().unbind(1):  # (8, c)
        products = [
            ((act @ reference)[:, None, None] * x).sum((0, 3)) for act in of_the_published_code()
        ]
        found.append(torch.stack(products).amax(0))
    torch.testing.assert_close(invariant(x), torch.stack(found, -1), rtol=1e-12, atol=1e-12)


def test_canonisation_follows_the_rule_of_the_published_code(scrambled):
    """octic, Eq. 17."""
    invariant = scrambled(INVARIANTS["canonisation"](8 * CHANNELS))
    x = features()
    y = invariant(x)
    for image, token in torch.cartesian_prod(torch.arange(2), torch.arange(5)).tolist():
        images = [(act @ x[:, image, token]).flatten() for act in of_the_published_code()]
        likeness = [float(each @ invariant.reference.flatten()) for each in images]
        closest = images[likeness.index(max(likeness))]
        torch.testing.assert_close(y[image, token], closest, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "of"), [("max_filtering", 48), ("canonisation", 1)])
def test_references_are_drawn_of_unit_length(name, of):
    (references,) = INVARIANTS[name](8 * CHANNELS).state_dict().values()
    torch.testing.assert_close(references.square().sum(), torch.tensor(float(of)))


class Asymmetry(nn.Module):
    """Zero under every element but one, which turns this triangle onto itself."""

    def forward(self, x):
        return x.triu().sum(dim=(2, 3))


def test_the_largest_change_counts():
    x = torch.zeros(1, 1, 4, 4)
    x[0, 0, 0, 1] = 3
    assert invariance_error(Asymmetry(), x) == 3
