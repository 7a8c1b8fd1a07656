"""The Triton kernel of the octic GELU, compared with the layer that it replaces, in float64."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from benchmarks.gpu.running import Measured, Settings, Step, largest_change

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
SHAPES = ((8, 1, 1, 1), (8, 2, 5, 7), (8, 3, 197, 513), (8, 64, 197, 512), (8, 16, 257, 2560))
LARGE = 310_000_000  # columns; seven planes have more elements than an int32 can count


def steps() -> Iterable[Step]:
    """Yield steps of values and gradients at usual sizes, and of over 2**31 elements."""
    yield Step("kernel", values_and_gradients, limit=60, needs_cuda=True)
    yield Step("kernel/large", large, limit=60, needs_cuda=True)


def values_and_gradients(settings: Settings) -> Iterator[Measured]:
    """Measure errors of outputs and gradients: the largest change over the largest value."""
    from vitrail.octic.kernels import octic_gelu
    from vitrail.octic.layers import OcticGELU

    torch.manual_seed(0)
    for name, dtype in DTYPES.items():
        for shape in SHAPES:
            x = torch.randn(shape, device=settings.device).to(dtype).requires_grad_()
            direction = torch.randn(shape, device=settings.device).to(dtype)
            exact = x.detach().double().requires_grad_()
            found, expected = octic_gelu(x), OcticGELU()(exact)
            found.backward(direction)
            expected.backward(direction.double())
            at = f"{'x'.join(map(str, shape))}/{name}"
            yield Measured(f"kernel/value/{at}", largest_change(found, expected), dtype=name)
            gradients = _gradient(x), _gradient(exact)
            yield Measured(f"kernel/gradient/{at}", largest_change(*gradients), dtype=name)


def _gradient(x: Tensor) -> Tensor:
    assert x.grad is not None
    return x.grad


def large(settings: Settings) -> Iterator[Measured]:
    """Compare the last 4,096 of `LARGE` columns with the result for these columns alone."""
    from vitrail.octic.kernels import octic_gelu

    torch.manual_seed(0)
    x = torch.zeros(8, LARGE, device=settings.device, dtype=torch.bfloat16)
    x[:, -4096:] = torch.randn(8, 4096, device=settings.device)
    with torch.no_grad():
        expected, found = octic_gelu(x[:, -4096:].contiguous()), octic_gelu(x)
        yield Measured("kernel/large", largest_change(found[:, -4096:], expected), dtype="bfloat16")
