import pytest
import torch
from torch.nn import functional

from vitrine.octic import activation
from vitrine.octic.activation import OcticGELU, octic_gelu
from vitrine.octic.features import act, to_isotypic, to_regular

GRID = (2, 3)


def test_it_commutes_with_the_group(element):
    x = torch.randn(8, 2, 7, 4, dtype=torch.float64)
    difference = octic_gelu(act(x, element, GRID, 1)) - act(octic_gelu(x), element, GRID, 1)
    assert difference.abs().max() <= 1e-12


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("chunk", [5, 1000])
def test_it_is_a_gelu_between_the_transforms(monkeypatch, chunk, grad):
    monkeypatch.setattr(activation, "CHUNK", chunk)
    x = torch.randn(8, 2, 7, 4, dtype=torch.float64)
    expected = to_isotypic(functional.gelu(to_regular(x)))
    with torch.set_grad_enabled(grad):
        torch.testing.assert_close(OcticGELU()(x), expected, rtol=0, atol=1e-13)


def test_a_compiler_sees_additions_of_the_same_numbers(monkeypatch):
    x = torch.randn(8, 2, 7, 4, dtype=torch.float64)
    expected = octic_gelu(x)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    torch.testing.assert_close(octic_gelu(x), expected, rtol=0, atol=1e-13)


def test_under_autocast_the_output_keeps_the_inputs_precision():
    x = torch.randn(8, 2, 3, 5)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(octic_gelu(x), octic_gelu(x.double()).float())
