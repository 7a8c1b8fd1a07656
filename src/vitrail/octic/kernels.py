"""The octic GELU as one Triton kernel, with its gradient (octic, Sec. 3.4).

Eight planes are read, transformed, activated, transformed back and written, so that neither the
regular features nor their activations ever reach memory. The gradient uses the same two transforms:
both are orthogonal, so each is the other's transpose.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from vitrail.octic import group

# Number of columns of (8, M) that a program processes. With this number, a thread of the program's
# four warps loads four neighbouring entries of each plane at once, and needs few enough registers
# for 16 warps or more on a multiprocessor.
BLOCK = 512
SCALE: tl.constexpr = tl.constexpr(group.SCALE)


@triton.jit
def _inverse_fourier(x):  # type: ignore[no-untyped-def]
    a, b, c, d = x[0] + x[1], x[0] - x[1], x[2] + x[3], x[2] - x[3]
    e, f, g, h = x[4] + x[5], x[4] - x[5], x[6] + x[7], x[6] - x[7]
    p, q, r, s = a + c, a - c, b + d, b - d
    t, u, v, w = e + h, f - g, f + g, e - h
    return p + t, q + u, p - t, q - u, r - v, s - w, r + v, s + w


@triton.jit
def _fourier(y):  # type: ignore[no-untyped-def]
    p, q, r, s = y[0] + y[2], y[1] + y[3], y[6] + y[4], y[7] + y[5]
    t, u, v, w = y[0] - y[2], y[1] - y[3], y[6] - y[4], y[7] - y[5]
    a, c, b, d = p + q, p - q, r + s, r - s
    e, h, f, g = t + w, t - w, v + u, v - u
    return a + b, a - b, c + d, c - d, e + f, e - f, g + h, g - h


@triton.jit
def _begin(planes, index: tl.constexpr, size):  # type: ignore[no-untyped-def]
    return planes + index * tl.cast(size, tl.int64)  # a tensor may have over 2^31 entries


@triton.jit
def _plane(planes, index: tl.constexpr, columns, size):  # type: ignore[no-untyped-def]
    return tl.load(_begin(planes, index, size) + columns, columns < size).to(tl.float32)


@triton.jit
def _load_regular(x, columns, size):  # type: ignore[no-untyped-def]
    return _inverse_fourier(
        (
            _plane(x, 0, columns, size),
            _plane(x, 1, columns, size),
            _plane(x, 2, columns, size),
            _plane(x, 3, columns, size),
            _plane(x, 4, columns, size),
            _plane(x, 5, columns, size),
            _plane(x, 6, columns, size),
            _plane(x, 7, columns, size),
        )
    )


@triton.jit
def _store_isotypic(out, columns, size, y):  # type: ignore[no-untyped-def]
    x = _fourier(y)
    for index in tl.static_range(8):
        tl.store(_begin(out, index, size) + columns, x[index] * SCALE, columns < size)


@triton.jit
def _gelu(y):  # type: ignore[no-untyped-def]
    y = y * SCALE
    return 0.5 * y * (1 + tl.erf(y * 0.7071067811865476))


@triton.jit
def _gelu_gradient(y, gradient):  # type: ignore[no-untyped-def]
    y = y * SCALE
    cdf = 0.5 * (1 + tl.erf(y * 0.7071067811865476))
    density = 0.3989422804014327 * tl.exp(-0.5 * y * y)
    return gradient * SCALE * (cdf + y * density)


@triton.jit
def _forward(x, out, size, block: tl.constexpr):  # type: ignore[no-untyped-def]
    columns = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    y = _load_regular(x, columns, size)
    y = (
        _gelu(y[0]),
        _gelu(y[1]),
        _gelu(y[2]),
        _gelu(y[3]),
        _gelu(y[4]),
        _gelu(y[5]),
        _gelu(y[6]),
        _gelu(y[7]),
    )
    _store_isotypic(out, columns, size, y)


@triton.jit
def _backward(x, gradient, out, size, block: tl.constexpr):  # type: ignore[no-untyped-def]
    columns = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    y = _load_regular(x, columns, size)
    g = _load_regular(gradient, columns, size)
    y = (
        _gelu_gradient(y[0], g[0]),
        _gelu_gradient(y[1], g[1]),
        _gelu_gradient(y[2], g[2]),
        _gelu_gradient(y[3], g[3]),
        _gelu_gradient(y[4], g[4]),
        _gelu_gradient(y[5], g[5]),
        _gelu_gradient(y[6], g[6]),
        _gelu_gradient(y[7], g[7]),
    )
    _store_isotypic(out, columns, size, y)


class OcticGELUFunction(torch.autograd.Function):
    """The exact GELU of ``(8, ...)`` in the regular representation, computed in float32."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        """Activate `x`."""
        return _launch(_forward, x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        """Keep `x` for either derivative."""
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """Return the gradient of `x`."""
        return _derivative(*ctx.saved_tensors, *gradients)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        """Return the tangent of the output; the matrix of derivatives is symmetric."""
        return _derivative(*ctx.saved_tensors, *tangents)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int], x: Tensor) -> tuple[Tensor, int]:
        """Activate a batch of inputs: every axis but the first may be a batch axis."""
        return octic_gelu(x.movedim(in_dims[0], 1)), 1


class OcticGELUDerivative(torch.autograd.Function):
    """The derivative of the GELU at `x`, multiplied by a gradient or tangent ``(8, ...)``."""

    @staticmethod
    def forward(x: Tensor, direction: Tensor) -> Tensor:
        """Multiply `direction` by the matrix of derivatives at `x`."""
        return _launch(_backward, x, direction)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Keep nothing: there is no second derivative."""

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *tensors: Tensor) -> tuple[Tensor, int]:
        """Multiply a batch of directions, inputs or both."""
        batches = [
            x.unsqueeze(1).expand(-1, info.batch_size, *x.shape[1:])
            if axis is None
            else x.movedim(axis, 1)
            for x, axis in zip(tensors, in_dims, strict=True)
        ]
        return _derivative(*batches), 1


def _derivative(x: Tensor, direction: Tensor) -> Tensor:
    y: Tensor = OcticGELUDerivative.apply(x, direction)
    return y


def _launch(kernel: Any, *tensors: Tensor) -> Tensor:
    tensors = tuple(tensor.contiguous() for tensor in tensors)
    out = torch.empty_like(tensors[0])
    size = out[0].numel()
    if size:
        with torch.cuda.device_of(out):
            kernel[(triton.cdiv(size, BLOCK),)](*tensors, out, size, block=BLOCK)
    return out


def octic_gelu(x: Tensor) -> Tensor:
    """Apply the exact GELU to ``(8, ...)``, as `vitrail.octic.layers.OcticGELU`."""
    y: Tensor = OcticGELUFunction.apply(x)
    return y
