"""Faster form of the block in `layers`, which models run: the same function and weights.

`torch.compile` fuses the operations between two matrix products into one kernel, if the products
need no copies of their inputs. So a compiled block keeps its features as an `IrrepPair`: one matrix
product serves the four lines (A1, A2, B1, B2) and one serves E, without copies in between. Under
eager torch the block runs the code of `layers`, except for the GELU on a GPU: one Triton kernel
(`kernels`).

Results are those of `layers` up to rounding. A compiled block does not call its modules, so it runs
no hooks on them; a module whose type is not in `COMPILED_FORMS` is called with features
``(8, B, N, c)``. `torch.export` counts as a compiler, so an exported graph has the compiled layout.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from vitrail.octic.group import SCALE, fourier, inverse_fourier
from vitrail.octic.layers import (
    E_WEIGHT,
    OcticAttention,
    OcticBlock,
    OcticDropout,
    OcticGELU,
    OcticLayerNorm,
    OcticLayerScale,
    OcticLinear,
    OcticMlp,
    SteerableDropPath,
    pad_to_a1,
)

TRITON = importlib.util.find_spec("triton") is not None


class IrrepPair(NamedTuple):
    """Octic features irrep by irrep.

    Attributes:
        lines: ``(4, B, N, c)`` of A1, A2, B1, B2.
        pairs: ``(B, N, 2, 2, c)`` of E: axis 2 is the row of E, axis 3 the copy.
    """

    lines: Tensor
    pairs: Tensor

    @classmethod
    def of(cls, x: Tensor) -> IrrepPair:
        """View features ``(8, B, N, c)`` irrep by irrep."""
        return cls(x[:4], x[4:].unflatten(0, (2, 2)).permute(2, 3, 1, 0, 4))

    def planes(self) -> list[Tensor]:
        """Return the eight planes ``(B, N, c)``."""
        return [*self.lines, *(self.pairs[:, :, k % 2, k // 2] for k in range(4))]

    def joined(self) -> Tensor:
        """Copy the planes into one tensor ``(8, B, N, c)``."""
        return torch.stack(self.planes())


class FastGELU(OcticGELU):
    """`OcticGELU`, computed by one kernel under a compiler, or by Triton on a GPU."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply the GELU to ``(8, B, N, c)``."""
        if torch.compiler.is_compiling():
            return _gelu(self, IrrepPair.of(x)).joined()
        if TRITON and x.is_cuda and x.dtype != torch.float64:
            from vitrail.octic import kernels

            return kernels.octic_gelu(x)
        return super().forward(x)


class FastMlp(OcticMlp):
    """`OcticMlp` with `FastGELU`; under a compiler it computes on an `IrrepPair`."""

    act_layer = FastGELU

    def forward(self, x: Tensor) -> Tensor:
        """Apply the MLP to ``(8, B, N, c)``."""
        if not torch.compiler.is_compiling():
            return super().forward(x)
        return _mlp(self, IrrepPair.of(x)).joined()


class FastBlock(OcticBlock):
    """`OcticBlock`; under a compiler it computes on an `IrrepPair`."""

    mlp_layer = FastMlp

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block to ``(8, B, N, c)``."""
        if not torch.compiler.is_compiling():
            return super().forward(x)
        y = IrrepPair.of(x)
        y = _sum(y, _apply_all([self.norm1, self.attn, self.ls1, self.drop_path1], y))
        y = _sum(y, _apply_all([self.norm2, self.mlp, self.ls2, self.drop_path2], y))
        return y.joined()


def _apply_all(modules: list[nn.Module], x: IrrepPair) -> IrrepPair:
    """Apply modules one after the other, each in its compiled form if it has one."""
    for module in modules:
        function = COMPILED_FORMS.get(type(module))
        x = function(module, x) if function else IrrepPair.of(module(x.joined()))
    return x


def _sum(x: IrrepPair, branch: IrrepPair) -> IrrepPair:
    """Add a branch to `x`; the sum has the memory layout of the branch."""
    return IrrepPair(branch.lines + x.lines, branch.pairs + x.pairs)


def _same(module: nn.Module, x: IrrepPair) -> IrrepPair:
    return x


def _linear(layer: OcticLinear, x: IrrepPair) -> IrrepPair:
    lines = torch.bmm(x.lines.flatten(1, 2), layer.weight.mT)
    if layer.bias is not None:
        lines[0] += layer.bias  # a compiler fuses this into the next kernel
    pairs = (x.pairs.flatten(-2) @ layer.weight_e.T).unflatten(-1, (2, -1))
    return IrrepPair(lines.unflatten(1, x.lines.shape[1:3]), pairs)


def _norm(layer: OcticLayerNorm, x: IrrepPair) -> IrrepPair:
    dtype = x.lines.dtype
    if dtype in (torch.bfloat16, torch.float16):
        x = IrrepPair(x.lines.float(), x.pairs.float())
    lines = x.lines - x.lines.mean(-1, keepdim=True)
    pairs = x.pairs - x.pairs.mean((-2, -1), keepdim=True)
    of_lines = torch.linalg.vector_norm(lines, dim=-1).square().sum(0)
    of_pairs = torch.linalg.vector_norm(pairs, dim=(2, 3, 4)).square()
    variance = (of_lines + E_WEIGHT[layer.convention] * of_pairs) / lines.shape[-1]
    scale = ((variance + layer.eps) / 8).rsqrt()[..., None]
    shift = pad_to_a1(layer.bias, 4)[:, None, None]
    lines = torch.addcmul(shift, lines * scale, layer.weight[:4, None, None])
    pairs = pairs * scale[..., None, None] * layer.weight[4:]
    return IrrepPair(lines.to(dtype), pairs.to(dtype))


def _scale(layer: OcticLayerScale, x: IrrepPair) -> IrrepPair:
    return IrrepPair(x.lines * layer.gamma[:4, None, None], x.pairs * layer.gamma[4:])


def _gelu(layer: OcticGELU, x: IrrepPair) -> IrrepPair:
    """Apply the GELU between two Fourier transforms that are written as additions.

    A compiler makes one kernel of them. The result has all planes of a token side by side in
    memory, so one loop writes them all.
    """
    regular = [SCALE * functional.gelu(SCALE * plane) for plane in inverse_fourier(x.planes())]
    y = fourier(regular)
    c = y[0].shape[-1]
    lines = torch.cat(y[:4], -1).unflatten(-1, (4, c)).movedim(-2, 0)
    pairs = torch.cat([y[4], y[6], y[5], y[7]], -1).unflatten(-1, (2, 2, c))
    return IrrepPair(lines, pairs)


def _attention(layer: OcticAttention, x: IrrepPair) -> IrrepPair:
    x = _apply_all([layer.qkv], x)
    heads = (3, layer.num_heads, -1)
    lines = x.lines.unflatten(3, heads).permute(3, 1, 4, 2, 0, 5)
    pairs = x.pairs.flatten(2, 3).unflatten(3, heads).permute(3, 0, 4, 1, 2, 5)
    q, k, v = torch.cat([lines, pairs], 4).flatten(4).unbind()  # (B, H, N, 8 d)
    dropout = layer.attn_drop.p if layer.training else 0.0
    y = functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
    planes = y.transpose(1, 2).contiguous().unflatten(3, (8, -1))  # (B, N, H, 8, d)
    lines = planes[:, :, :, :4].permute(3, 0, 1, 2, 4).contiguous().flatten(3)
    pairs = planes[:, :, :, 4:].transpose(2, 3).contiguous().unflatten(2, (2, 2)).flatten(4)
    return _apply_all([layer.proj, layer.proj_drop], IrrepPair(lines, pairs))


def _mlp(layer: OcticMlp, x: IrrepPair) -> IrrepPair:
    return _apply_all([layer.fc1, layer.act, layer.drop1, layer.fc2, layer.drop2], x)


def _dropout(layer: OcticDropout, x: IrrepPair) -> IrrepPair:
    return _masked(layer, x, x.lines.shape[1:])


def _drop_path(layer: SteerableDropPath, x: IrrepPair) -> IrrepPair:
    return _masked(layer, x, (x.lines.shape[1], 1, 1))


def _masked(layer: nn.Module, x: IrrepPair, shape: tuple[int, ...]) -> IrrepPair:
    """Multiply by the layer's dropout mask, its output for ones ``(8, *shape)``, in training."""
    if not layer.training:
        return x
    mask = IrrepPair.of(layer(x.lines.new_ones(8, *shape)))
    return IrrepPair(x.lines * mask.lines, x.pairs * mask.pairs)


COMPILED_FORMS: dict[type[nn.Module], Callable[[Any, IrrepPair], IrrepPair]] = {
    OcticLinear: _linear,
    OcticLayerNorm: _norm,
    OcticLayerScale: _scale,
    FastGELU: _gelu,
    OcticAttention: _attention,
    FastMlp: _mlp,
    OcticDropout: _dropout,
    SteerableDropPath: _drop_path,
    nn.Identity: _same,
}
"""The function that a compiled block calls in place of each type of module."""
