import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from vitrine.errors import VitrineError
from vitrine.octic.features import act
from vitrine.octic.group import ELEMENTS, isotypic
from vitrine.octic.linear import OcticLinear, octic_linear

GRID = (2, 3)


@pytest.fixture
def layer(scrambled):
    return scrambled(OcticLinear(16, 24))


def features(channels=2):
    return torch.randn(8, 2, 7, channels, dtype=torch.float64)


def test_it_commutes_with_the_group(layer, element):
    x = features()
    difference = layer(act(x, element, GRID, 1)) - act(layer(x), element, GRID, 1)
    assert difference.abs().max() <= 1e-12


def test_nothing_else_commutes():
    """The dense maps that commute with the group have as many dimensions as the layer's weights."""
    eye = torch.eye(8, dtype=torch.float64)
    constraints = [
        torch.kron(isotypic(g), eye) - torch.kron(eye, isotypic(g).T.contiguous()) for g in ELEMENTS
    ]
    dimensions = 64 - torch.linalg.matrix_rank(torch.cat(constraints))
    assert dimensions == sum(p.numel() for p in OcticLinear(8, 8, bias=False).parameters())


def test_each_irrep_has_its_own_matrix(layer):
    x = features()
    y = layer(x)
    for plane in range(4):
        expected = x[plane] @ layer.weight[plane].mT + (layer.bias if plane == 0 else 0)
        torch.testing.assert_close(y[plane], expected)
    for row in range(2):
        columns = torch.cat([x[4 + row], x[6 + row]], dim=-1)  # copy 1, copy 2
        expected = columns @ layer.weight_e.mT
        torch.testing.assert_close(torch.cat([y[4 + row], y[6 + row]], dim=-1), expected)


@pytest.mark.parametrize("bias", [True, False])
def test_its_gradients_are_those_of_its_products(bias):
    layer = OcticLinear(16, 24, bias).double()
    x = torch.randn(8, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(octic_linear, (x, layer.weight, layer.weight_e, layer.bias))


def test_it_costs_a_fraction_of_a_dense_layer():
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        layer = OcticLinear(1024, 4096)
        layer(torch.empty(8, 1, 10, 128))
    dense = 10 * 1024 * 4096
    assert counter.get_total_flops() / 2 == dense * 12 / 64
    assert sum(p.numel() for p in layer.parameters()) == 1024 * 4096 / 8 + 4096 / 8


def test_autocast_lowers_its_precision():
    layer = OcticLinear(16, 24)
    x = torch.randn(8, 2, 7, 2)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), layer(x), rtol=2e-2, atol=2e-3)
    y.sum().backward()
    assert layer.weight.grad.dtype == torch.float32


def test_weights_begin_small_and_the_bias_at_zero():
    layer = OcticLinear(256, 256)
    assert layer.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert layer.weight_e.std().item() == pytest.approx(0.02, rel=0.05)
    assert not layer.bias.any()


@pytest.mark.parametrize("sizes", [(12, 16), (16, 12)])
def test_channels_that_are_no_multiple_of_eight_are_refused(sizes):
    with pytest.raises(VitrineError, match="12 channels; give a multiple of 8"):
        OcticLinear(*sizes)
