"""Count the operations of a forward pass, by the papers' convention and by torch's.

Most papers report the count of fvcore: a multiply-add is one operation, and so is an addition or a
multiplication of two elements. Other functions of an element have a conventional cost
(`ELEMENTWISE`, `REDUCTIONS`). Attention counts as its two matrix products, ``2 T^2 C``, without its
softmax. torch counts two operations for each multiply-add and nothing else.

On the meta device nothing is computed or stored, so a model of any size is counted in seconds.
Attention, and modules with a method ``operations``, are counted as a whole and not run.
``operations`` has the arguments of ``forward`` and returns the number of element-wise operations;
the module's output must have the shape of its first argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

ELEMENTWISE = {
    **dict.fromkeys(["add", "sub", "rsub", "mul", "div", "neg"], 1),
    **dict.fromkeys(["sqrt", "rsqrt", "sigmoid"], 4),
    **dict.fromkeys(["pow", "_softmax"], 5),
    "gelu": 8,
}
"""Operations for each element of the output, by function of aten."""

REDUCTIONS = {"sum": 1, "mean": 1, "var": 2, "native_batch_norm": 2}
"""Operations for each element of the input, by function of aten."""

SOFTMAX = ELEMENTWISE["_softmax"]


@dataclass
class Operations:
    """The operations of a forward pass."""

    products: int = 0  # multiply-adds of matrix products, convolutions and attention
    elementwise: int = 0  # operations on elements
    attention: int = 0  # scaling of queries and softmax, which are not in `elementwise`

    @property
    def macs(self) -> int:
        """`products` + `elementwise`, as fvcore counts a model with fused attention."""
        return self.products + self.elementwise


def count(model: nn.Module, *inputs: Tensor) -> Operations:
    """Count the operations of a forward pass; model and inputs must be on the meta device.

    The model cannot be used afterwards, as some of its modules' `forward` are replaced.
    """
    found = Operations()
    for module in model.modules():
        if hasattr(module, "operations"):
            module.forward = partial(_whole_module, module, found)
    counter = FlopCounterMode(display=False, custom_mapping=PRICES)
    with torch.no_grad(), _WholeAttention(found), counter:
        model(*inputs)
    counts = counter.get_flop_counts().get("Global", {})
    found.elementwise += sum(counts[function] for function in counts if function in PRICES)
    found.products += sum(counts[function] // 2 for function in counts if function not in PRICES)
    return found


def _whole_module(module: Any, found: Operations, x: Any, *others: Any, **named: Any) -> Any:
    found.elementwise += module.operations(x, *others, **named)
    return tree_map(torch.empty_like, x)


class _WholeAttention(TorchFunctionMode):
    """Count attention as a whole; torch would decompose it differently on each device."""

    def __init__(self, found: Operations) -> None:
        super().__init__()
        self.found = found

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is not functional.scaled_dot_product_attention:
            return function(*args, **(kwargs or {}))
        query, key, value = args[:3]
        self.found.products += sdpa_flop_count(query.shape, key.shape, value.shape) // 2
        scores = query.shape[:-1].numel() * key.shape[-2]
        self.found.attention += query.numel() + SOFTMAX * scores
        return query.new_empty(*query.shape[:-1], value.shape[-1])


def _of_output(price: int, *_: Any, out_shape: Sequence[int], **__: Any) -> int:
    return price * math.prod(out_shape)


def _of_input(price: int, shape: Sequence[int], *_: Any, **__: Any) -> int:
    return price * math.prod(shape)


def _layer_norm(shape: Sequence[int], _: Any, weight: Any, *__: Any, **___: Any) -> int:
    """Return fvcore's count: mean, variance, and the affine transform if there is one."""
    return (4 if weight is None else 5) * math.prod(shape)


def _in_aten(name: str) -> list[Any]:
    """Return a function of aten and its in-place version, if they exist."""
    both = (getattr(torch.ops.aten, version, None) for version in (name, f"{name}_"))
    return [function for function in both if function is not None]


PRICES: dict[Any, Callable[..., int]] = {
    **dict.fromkeys(_in_aten("native_layer_norm"), _layer_norm),
    **{each: partial(_of_output, n) for name, n in ELEMENTWISE.items() for each in _in_aten(name)},
    **{each: partial(_of_input, n) for name, n in REDUCTIONS.items() for each in _in_aten(name)},
}
