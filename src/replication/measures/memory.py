"""Peak memory of training and of inference (shift, Sec. A2.3, Table A1).

Every number is measured in a process of its own, which does nothing else. As in the paper, it is
the peak of what torch's allocator has provided to tensors (allocated) and of what it has taken
from the device (reserved). torch does not count memory on a CPU, so there are no numbers;
`replication.measures.live_tensors` computes without a GPU what would be allocated on one.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from replication.context import Context, Values
from replication.measures.parameters import Architecture, architectures, comparisons
from replication.training.model_factory import Precision, autocast
from vitrail.errors import VitrailError
from vitrail.measures.outputs import out_of_memory, without_tf32

Phase = Literal["training", "inference"]

QUANTITIES = ("allocated", "reserved")
MIB = 2**20
STEPS = 2
"""Training steps; only from the second on, the optimiser's state and activations coexist."""


def memory(
    context: Context,
    models: Mapping[str, Mapping[str, Any]],
    pairs: Mapping[str, str | Sequence[str]] | None = None,
    batch_size: int = 64,
    phases: Sequence[Phase] = get_args(Phase),
    precision: Precision = "fp32",
    compile: bool = False,
) -> Values:
    """Measure the peak memory of untrained models on noise.

    The arguments are those of `replication.measures.throughput.throughput`, and `phases`, the
    phases that are measured; the numbers of others are None.

    Returns:
        ``batch_size`` and ``"<label>/<phase>/<quantity>"`` in MiB. For a model in `pairs` also
        ``"<label>/<phase>/<quantity>/gain"``, the memory of its partner divided by its own, and
        ``.../change``, by how many percent its own is higher. Phases are ``training`` (forward,
        backward, AdamW) and ``inference``; quantities are ``allocated`` and ``reserved``. On a CPU
        all are None, and nothing is run.

    Raises:
        VitrailError: a model does not exist or refuses its arguments, a pair is not measured, or
            the memory does not suffice.
    """
    compared = comparisons(pairs, models)
    values: dict[str, float | None] = {"batch_size": batch_size}
    measured = phases if torch.device(context.device).type == "cuda" else ()
    for label, architecture in architectures(models).items():
        for phase in get_args(Phase):
            task = (architecture, phase, batch_size, context, precision, compile)
            peaks = _in_a_fresh_process(*task) if phase in measured else {}
            values |= {f"{label}/{phase}/{name}": peaks.get(name) for name in QUANTITIES}
    kinds = [f"{phase}/{quantity}" for phase in get_args(Phase) for quantity in QUANTITIES]
    for (label, plain, end), kind in itertools.product(compared, kinds):
        before, after = (values[f"{name}/{kind}"] for name in (plain, label))
        gain = before / after if before and after else None
        values[f"{label}/{kind}/gain{end}"] = gain
        values[f"{label}/{kind}/change{end}"] = 100 * (1 / gain - 1) if gain else None
    return values


def _in_a_fresh_process(
    architecture: Architecture, phase: Phase, batch_size: int, *settings: Any
) -> dict[str, float]:
    fresh = get_context("forkserver")  # forks a process that has only imported torch
    fresh.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(max_workers=1, mp_context=fresh) as pool:
        try:
            return pool.submit(peak, architecture, phase, batch_size, *settings).result()
        except (BrokenProcessPool, RuntimeError, MemoryError) as error:
            if not isinstance(error, BrokenProcessPool) and not out_of_memory(error):
                raise
            raise VitrailError(
                f"the {phase} of '{architecture.name}' with {batch_size} images did not come to "
                "its end, most likely for want of memory; lower the measure's batch_size"
            ) from None


def peak(
    architecture: Architecture,
    phase: Phase,
    batch_size: int,
    context: Context,
    precision: Precision = "fp32",
    compile: bool = False,
) -> dict[str, float]:
    """Run a phase on a GPU and return its `QUANTITIES` in MiB; call it in a new process.

    Raises:
        VitrailError: the model cannot be built.
    """
    without_tf32()
    device, seed = context.device, context.seed
    model = architecture.build(seed)
    images = architecture.images(batch_size, model, seed).to(device)
    model = model.to(device)
    if compile:
        model.compile()
    with autocast(device, precision):
        run(model, images, phase)
    counted = (torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device))
    return dict(zip(QUANTITIES, (count / MIB for count in counted), strict=True))


def run(model: nn.Module, images: Tensor, phase: Phase) -> None:
    """Take `STEPS` training steps with AdamW, or one forward pass."""
    if phase == "inference":
        with torch.no_grad():
            model.eval()(images)
        return
    model.train()
    fused = not images.is_meta  # training uses fused AdamW; the meta device has none
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    for _ in range(STEPS):
        optimizer.zero_grad()
        logits = model(images)
        labels = torch.zeros(len(logits), dtype=torch.long, device=logits.device)
        nn.functional.cross_entropy(logits, labels).backward()
        optimizer.step()
