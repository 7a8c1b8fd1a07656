import os

import pytest
import torch
from torch.nn import functional

from vitrail.octic.group import FOURIER, INVERSE_FOURIER, on_planes

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are made
pytest.importorskip("triton")
kernels = pytest.importorskip("vitrail.octic.kernels")

COLUMNS = kernels.BLOCK + 10  # the last block is not full


def eager(x):
    return on_planes(FOURIER, functional.gelu(on_planes(INVERSE_FOURIER, x)))


def test_an_empty_tensor_stays_empty():
    assert kernels.octic_gelu(torch.empty(8, 0, device=DEVICE)).shape == (8, 0)


def test_the_kernel_is_the_reference():
    """octic, Sec. 3.4."""
    x = torch.randn(8, 2, COLUMNS // 2, device=DEVICE)
    torch.testing.assert_close(kernels.octic_gelu(x), eager(x), rtol=0, atol=2e-6)


def test_the_kernels_gradient_is_the_references():
    x = torch.randn(8, COLUMNS, requires_grad=True, device=DEVICE)
    upstream = torch.randn(COLUMNS, 8, device=DEVICE).T
    (expected,) = torch.autograd.grad(eager(x), x, upstream)
    (gradient,) = torch.autograd.grad(kernels.octic_gelu(x), x, upstream)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=2e-6)


def test_a_forward_derivative_is_the_references():
    x, direction = torch.randn(2, 8, COLUMNS, device=DEVICE)
    found = torch.func.jvp(kernels.octic_gelu, (x,), (direction,))
    expected = torch.func.jvp(eager, (x,), (direction,))
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("axis", [0, 1])
def test_gradients_of_single_samples_are_the_references(axis):
    """Of a batch whose samples share an upstream gradient."""
    x = torch.randn(8, 8, 3, 5, device=DEVICE)
    upstream = torch.randn(8, 3, 5, device=DEVICE)
    found, expected = (
        torch.func.vmap(
            torch.func.grad(lambda x, function=function: (function(x) * upstream).sum()), axis
        )(x)
        for function in (kernels.octic_gelu, eager)
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-6)


def test_the_kernel_computes_half_precision_in_float32():
    x = torch.randn(8, 64, device=DEVICE).half()
    expected = eager(x.float()).half()
    torch.testing.assert_close(kernels.octic_gelu(x), expected, rtol=1e-3, atol=1e-6)
