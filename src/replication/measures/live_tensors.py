"""Peak memory of a model's tensors, counted without a GPU (shift, Table A1; octic, Tables 1 and 2).

On the meta device nothing is computed or stored, but each tensor of a pass exists, with its size,
until it is released. The largest number of bytes that exist at the same time is what torch's
allocator provides for them on a GPU. Two things are not counted: the working memory of kernels,
and the memory that a compiler saves.

The numbers are exact: they depend on the model, the batch size and torch's version only.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, get_args

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from replication.context import Context, Values
from replication.measures.memory import MIB, Phase, run
from replication.measures.parameters import Architecture, architectures, comparisons

BLOCK = 512
"""Bytes of a block; torch's CUDA allocator rounds every request up to a multiple of it."""


class LiveTensors(TorchDispatchMode):
    """Count the bytes of `tensors` and of all tensors that are made while this mode is active.

    Views share the storage of their tensor, which is counted once.

    Attributes:
        live: bytes that exist now.
        peak: the maximum of `live` so far.
    """

    def __init__(self, tensors: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._sizes: dict[int, int] = {}  # bytes of each storage, by its address
        for tensor in tensors:
            self._count(tensor)

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor):
                self._count(tensor)
        return made

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        known = storage._cdata
        if known in self._sizes:
            return
        size = -(-storage.nbytes() // BLOCK) * BLOCK
        self._sizes[known] = size
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._forget, known)

    def _forget(self, known: int) -> None:
        self.live -= self._sizes.pop(known)


class FusedAttention(TorchFunctionMode):
    """Compute attention by a fused GPU kernel, which does not store the attention scores.

    Without this mode, the meta device computes attention as single operations, with the scores.
    """

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if function is not functional.scaled_dot_product_attention:
            return function(*args, **(kwargs or {}))
        return _attention(*args, **(kwargs or {}))


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    kernel = torch.ops.aten._scaled_dot_product_efficient_attention
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*query.shape[:-1], key.shape[-2])
    settings = (attn_mask, torch.is_grad_enabled(), dropout_p, is_causal)
    output: Tensor = kernel(query, key, value, *settings, scale=scale)[0]
    return output


def live_tensors(
    context: Context,
    models: Mapping[str, Mapping[str, Any]],
    pairs: Mapping[str, str | Sequence[str]] | None = None,
    batch_size: int = 64,
    phases: Sequence[Phase] = get_args(Phase),
    fused_attention: bool = False,
) -> Values:
    """Count the peak memory of models, in float32.

    The arguments are those of `replication.measures.memory.memory`; phases that are not in `phases`
    are left out of the result. `fused_attention` uses `FusedAttention`.

    Returns:
        ``"<label>/<phase>"`` in MiB. For a model in `pairs` also ``"<label>/<phase>/gain"``, the
        memory of its partner divided by its own, and ``.../change``, by how many percent its own is
        higher.

    Raises:
        VitrailError: a model does not exist or refuses its arguments, or a pair is not measured.
    """
    compared = comparisons(pairs, models)
    values = {
        f"{label}/{phase}": counted(architecture, phase, batch_size, fused_attention) / MIB
        for label, architecture in architectures(models).items()
        for phase in phases
    }
    for (label, plain, end), phase in itertools.product(compared, phases):
        gain = values[f"{plain}/{phase}"] / values[f"{label}/{phase}"]
        values[f"{label}/{phase}/gain{end}"] = gain
        values[f"{label}/{phase}/change{end}"] = 100 * (1 / gain - 1)
    return values


def counted(
    architecture: Architecture, phase: Phase, batch_size: int, fused_attention: bool = False
) -> int:
    """Return the peak memory of a phase in bytes, weights included (`memory.run`)."""
    with torch.device("meta"):
        model = architecture.build(seed=0)
        side = architecture.side(model)
        images = torch.empty(batch_size, 3, side, side)
    attention = FusedAttention() if fused_attention else nullcontext()
    with LiveTensors([*model.parameters(), *model.buffers(), images]) as tensors, attention:
        run(model, images, phase)
    return tensors.peak
