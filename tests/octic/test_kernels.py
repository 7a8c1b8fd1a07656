import os

import pytest
import torch

from vitrine.octic.activation import octic_gelu as reference

os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are made
pytest.importorskip("triton")
kernels = pytest.importorskip("vitrine.octic.kernels")

COLUMNS = kernels.BLOCK + 10  # the last block is not full


def test_the_kernel_is_the_reference():
    x = torch.randn(8, 2, COLUMNS // 2)
    torch.testing.assert_close(kernels.octic_gelu(x), reference(x), rtol=0, atol=2e-6)


def test_the_kernels_gradient_is_the_references():
    x = torch.randn(8, COLUMNS, requires_grad=True)
    upstream = torch.randn(8, COLUMNS)
    (expected,) = torch.autograd.grad(reference(x), x, upstream)
    (gradient,) = torch.autograd.grad(kernels.octic_gelu(x), x, upstream)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=2e-6)


def test_the_kernel_computes_half_precision_in_float32():
    x = torch.randn(8, 64).half()
    expected = reference(x.float()).half()
    torch.testing.assert_close(kernels.octic_gelu(x), expected, rtol=1e-3, atol=1e-6)
