"""Predict times of forward passes from counts of kernels, bytes and operations, without a GPU.

Each function of aten that computes is counted as one kernel. Its least time is the longest of the
time to launch it, the time to move its bytes at the peak bandwidth of the memory, and the time of
its operations at the peak rate of the arithmetic. The sum over the kernels is the least time of an
eager model. Fusion by torch.compile is not considered.

    python -m benchmarks.gpu.roofline

The printed peaks are those of an H100 SXM; an H200 has 4.8e12 bytes a second.
"""

from __future__ import annotations

from typing import Any

import vitrail.models  # noqa: F401  # isort: skip  (before timm: it repairs torchvision's import)

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from benchmarks.gpu.papers import BATCH, octic_models, shift_models
from replication.measures.parameters import Architecture

BYTES = 3.35e12  # per second
LAUNCH = 5e-6  # seconds
FLOATS = 67e12  # operations per second in float32, without TF32
HALVES = 989e12  # operations per second in bfloat16
VIEWS = (  # functions whose names begin so launch no kernel
    *("view", "reshape", "expand", "permute", "transpose", "slice", "select", "unbind", "split"),
    *("squeeze", "unsqueeze", "detach", "alias", "as_strided", "unsafe_view", "empty"),
)


class Roofline(TorchDispatchMode):
    """Counts kernels and adds up their least times, at `peak` operations per second."""

    def __init__(self, peak: float) -> None:
        super().__init__()
        self.peak, self.kernels, self.seconds = peak, 0, 0.0
        self.bytes, self.operations = 0, 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call a function of aten and count its bytes, operations and least time."""
        out = function(*args, **(kwargs or {}))
        name = function.name().removeprefix("aten::").lstrip("_")
        if name == "t" or name.startswith(VIEWS):
            return out
        tensors = [x for x in tree_leaves((args, kwargs, out)) if isinstance(x, torch.Tensor)]
        moved = sum(x.numel() * x.element_size() for x in tensors)
        count = flop_registry.get(function._overloadpacket)
        operations = count(*args, **(kwargs or {}), out_val=out) if count else 0
        self.kernels += 1
        self.bytes += moved
        self.operations += operations
        self.seconds += max(LAUNCH, moved / BYTES, operations / self.peak)
        return out


def predict(architecture: Architecture, batch_size: int, dtype: torch.dtype) -> Roofline:
    """Count a forward pass of `batch_size` images through a model, on the meta device."""
    with torch.device("meta"), torch.no_grad():
        model = architecture.build(0).eval().to(dtype)
        side = architecture.side(model)
        images = torch.empty(batch_size, 3, side, side, dtype=dtype)
        with Roofline(HALVES if dtype == torch.bfloat16 else FLOATS) as found:
            model(images)
    return found


def main() -> None:
    """Print one line for each model of shift Table 3 and of octic Table 2."""
    for label, model in shift_models(quick=False).items():
        for batch_size in (128, 1):
            _print(label, batch_size, predict(Architecture(**model), batch_size, torch.float32))
    for label, model in octic_models(quick=False).items():
        _print(label, BATCH, predict(Architecture(**model), BATCH, torch.bfloat16))


def _print(label: str, batch_size: int, found: Roofline) -> None:
    print(
        f"{label}, batch {batch_size}: {found.kernels} kernels, {found.bytes / 1e9:.2f} GB, "
        f"{found.operations / 1e9:.0f} GFLOP, {1000 * found.seconds:.2f} ms",
        flush=True,
    )


if __name__ == "__main__":
    main()
