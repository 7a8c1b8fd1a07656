"""Logits on the device and on the CPU; how often a pass waits for the GPU."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from functools import partial

import torch
from torch import nn

from benchmarks.gpu.families import GROUPS, Family
from benchmarks.gpu.running import Measured, Settings, Step, each, largest_change
from replication.training.model_factory import autocast
from vitrail.measures.outputs import without_tf32

SYNC = "called a synchronizing CUDA operation"  # in torch's warnings


def equality_steps() -> Iterable[Step]:
    """Yield one step for each group of families."""
    for group in GROUPS:
        yield Step(f"equality/{group}", partial(equality, group=group), limit=90)


def sync_steps() -> Iterable[Step]:
    """Yield one step for each group of families."""
    for group in GROUPS:
        yield Step(f"syncs/{group}", partial(syncs, group=group), limit=45, needs_cuda=True)


def equality(settings: Settings, group: str) -> Iterator[Measured]:
    """Measure the largest change of a logit from float64 on the CPU, over the largest logit."""
    families = GROUPS[group](settings.quick)

    def compare(label: str) -> Iterator[Measured]:
        family = families[label]
        model, images = family.build(), family.images(2)
        with torch.no_grad():
            on_cpu = model(images)
            expected = model.double()(images.double())
            yield _row(label, "cpu", largest_change(on_cpu, expected))
            model = family.build().to(settings.device)
            images = images.to(settings.device)
            for precision in ("float32", "tf32", "bf16") if settings.cuda else ("bf16",):
                with _computing_in(precision, settings.device):
                    found = model(images)
                without_tf32()
                yield _row(label, precision, largest_change(found, expected))

    yield from each(families, compare)


def _row(label: str, precision: str, error: float) -> Measured:
    dtype = "float32" if precision == "cpu" else precision
    return Measured(f"equality/{label}/{precision}", error, "of the largest logit", dtype)


def _computing_in(precision: str, device: str) -> torch.autocast | nullcontext[None]:
    if precision == "bf16":
        return autocast(device, "bf16")
    if precision == "tf32":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    return nullcontext()


def syncs(settings: Settings, group: str) -> Iterator[Measured]:
    """Count how often a forward pass, and a training pass, wait for the work queued on the GPU."""
    families = GROUPS[group](settings.quick)

    def count(label: str) -> Iterator[Measured]:
        family: Family = families[label]
        model = family.build().to(settings.device)
        images = family.images(2).to(settings.device)
        with torch.no_grad():
            yield Measured(f"syncs/{label}/forward", _waits(model, images, backward=False))
        yield Measured(f"syncs/{label}/training", _waits(model.train(), images, backward=True))

    yield from each(families, count)


def _waits(model: nn.Module, images: torch.Tensor, backward: bool) -> int:
    def call() -> None:
        logits = model(images)
        if backward:
            logits.sum().backward()

    call()  # for what happens in the first call only
    torch.cuda.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            call()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum(SYNC in str(warning.message) for warning in caught)
