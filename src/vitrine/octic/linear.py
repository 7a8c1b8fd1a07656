"""Octic linear layer: everything that commutes with the group (Sec. 3.2).

By Schur's lemma a plane of an irrep of one dimension only sees itself, and E's 2c columns [copy 1 |
copy 2] are mixed by one matrix that both rows share: 12 c c' multiply-adds where a dense layer has
64. A bias may only go where the group does nothing, to A1.

The products are an operator of torch's own kind, since only then does each write its planes into
the one output, also under autograd and `torch.compile`; concatenating them costs a fifth more.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import register_flop_formula

from vitrine.errors import VitrineError


def octic_channels(features: int) -> int:
    """Return how many channels a plane has.

    Raises:
        VitrineError: eight planes cannot share them equally.
    """
    if features % 8:
        raise VitrineError(f"octic features have {features} channels; give a multiple of 8")
    return features // 8


@torch.library.custom_op("vitrine::octic_linear", mutates_args=())
def octic_linear(x: Tensor, weight: Tensor, weight_e: Tensor, bias: Tensor | None) -> Tensor:
    """Multiply ``(8, M, c)`` by ``(4, c', c)`` and ``(2c', 2c)``, see `OcticLinear`."""
    c_out = weight.shape[1]
    y = x.new_empty(8, x.shape[1], c_out)
    torch.bmm(x[1:4], weight[1:].mT, out=y[1:4])
    if bias is None:
        torch.mm(x[0], weight[0].mT, out=y[0])
    else:
        torch.addmm(bias, x[0], weight[0].mT, out=y[0])
    pairs = _pairs(x)
    for out, block in zip(y[4:].view(2, -1, c_out), weight_e.split(c_out), strict=True):
        torch.mm(pairs, block.mT, out=out)
    return y


def _pairs(x: Tensor) -> Tensor:
    """Take E of ``(8, M, c)`` as its rows of 2c columns, ``(2M, 2c)``."""
    return x[4:].unflatten(0, (2, 2)).permute(1, 2, 0, 3).flatten(2).flatten(0, 1)


@octic_linear.register_fake
def _(x: Tensor, weight: Tensor, weight_e: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty(8, x.shape[1], weight.shape[1])


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.has_bias = inputs[3] is not None


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, weight_e = ctx.saved_tensors
    needs_x, needs_weight, needs_weight_e, _ = ctx.needs_input_grad
    grad = grad.contiguous()
    grad_x = octic_linear(grad, weight.mT, weight_e.T, None) if needs_x else None
    grad_weight = grad[:4].mT @ x[:4] if needs_weight else None
    grad_weight_e = _pairs(grad).mT @ _pairs(x) if needs_weight_e else None
    return grad_x, grad_weight, grad_weight_e, grad[0].sum(0) if ctx.has_bias else None


octic_linear.register_autograd(_backward, setup_context=_save_for_backward)


@register_flop_formula(torch.ops.vitrine.octic_linear)
def _flops(x: torch.Size, weight: torch.Size, *_: Any, **__: Any) -> int:
    """Two for each multiply-add: four planes, and two rows of a matrix of 2c x 2c'."""
    return 2 * 12 * x[1] * weight[1] * weight[2]


class OcticLinear(nn.Module):
    """Equivariant linear layer, ``(8, B, N, c)`` to ``(8, B, N, c')``.

    Attributes:
        weight: ``(4, c', c)`` of A1, A2, B1, B2.
        weight_e: ``(2c', 2c)`` of E; rows and columns are [copy 1 | copy 2].
        bias: ``(c')`` of A1, or None.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        """Build it with truncated normal weights (std 0.02) and a bias of zero.

        Args:
            in_features: C, channels of all planes together.
            out_features: C'.
            bias: whether A1 has one.

        Raises:
            VitrineError: C or C' is no multiple of 8.
        """
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        c, c_out = octic_channels(in_features), octic_channels(out_features)
        self.weight = nn.Parameter(torch.empty(4, c_out, c))
        self.weight_e = nn.Parameter(torch.empty(2 * c_out, 2 * c))
        self.bias = nn.Parameter(torch.empty(c_out)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise as the paper does."""
        nn.init.trunc_normal_(self.weight, std=0.02)
        nn.init.trunc_normal_(self.weight_e, std=0.02)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Apply it to ``(8, B, N, c)``."""
        tensors = [x.flatten(1, 2), self.weight, self.weight_e, self.bias]
        device = x.device.type
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            tensors = [tensor if tensor is None else tensor.to(dtype) for tensor in tensors]
        return octic_linear(*tensors).unflatten(1, x.shape[1:3])

    def extra_repr(self) -> str:
        """Show the sizes, as `nn.Linear` does."""
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"
