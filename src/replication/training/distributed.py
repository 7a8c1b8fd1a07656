"""The processes of one training (one, or as many as torchrun has started), and their signals.

Only rank 0 reads and writes the run folder. It sends what it has read, or its error, to the other
ranks, so that all continue or all stop. A cluster sends SIGTERM or SIGUSR1 before it stops a job,
and a person sends SIGINT by Ctrl-C. These signals are only recorded: the loop finishes its step,
saves a checkpoint and exits with status 128 + signal, so that the training counts as failed, is
started again, and resumes.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Self, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from replication.training.model_factory import torch_device
from vitrail.errors import VitrailError

Result = TypeVar("Result")


@dataclass(frozen=True)
class Team:
    """The processes of one training: this one's `rank` among `world` of them, and its device."""

    rank: int
    world: int
    device: torch.device

    @classmethod
    def assemble(cls, device: str) -> Team:
        """Return this process's team; join the process group if torchrun has started several.

        Raises VitrailError if torch does not know the device, or this machine lacks it.
        """
        place = torch_device(device)
        if place.type == "cuda":
            torch.cuda.set_device(place)
        world = int(os.environ.get("WORLD_SIZE", 1))
        if world > 1 and not dist.is_initialized():
            # gloo in addition to nccl: agreeing on when to stop must not wait for the GPU.
            dist.init_process_group("cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo")
            atexit.register(dist.destroy_process_group)
        return cls(dist.get_rank() if world > 1 else 0, world, place)

    @property
    def is_rank_zero(self) -> bool:
        """Whether this process reads and writes the run folder."""
        return self.rank == 0

    def on_rank_zero(self, work: Callable[[], Result]) -> Result:
        """Call `work` on rank 0 while the other ranks wait; all ranks return its result.

        The result must be picklable. A VitrailError of `work` is raised on rank 0; the other ranks
        then exit with status 2.
        """
        if self.world == 1:
            return work()
        told: list[Any] = [None, None]  # result, error
        try:
            told[0] = work() if self.is_rank_zero else None
        except VitrailError as error:
            told[1] = str(error)
        dist.broadcast_object_list(told, src=0, device=torch.device("cpu"))
        result, failure = told
        if failure is not None:
            raise VitrailError(failure) if self.is_rank_zero else SystemExit(2)
        return result

    def on_all_ranks(self, work: Callable[[], Result]) -> Result:
        """Call `work` on every rank and return its result there; all succeed or all stop.

        `work` must not wait for another rank. A VitrailError is raised on the lowest rank on which
        `work` raised one; the other ranks exit with status 2.
        """
        if self.world == 1:
            return work()
        try:
            result, failure = work(), None
        except VitrailError as error:
            result, failure = None, error
        (from_last,) = self.largest(self.world - self.rank if failure else 0)
        if failure and self.world - from_last == self.rank:
            raise failure
        if from_last:
            raise SystemExit(2)
        return cast(Result, result)

    def largest(self, *values: int) -> list[int]:
        """Return, for each of `values`, its maximum over the processes."""
        if self.world == 1:
            return list(values)
        shared = torch.tensor(values)
        dist.all_reduce(shared, dist.ReduceOp.MAX)
        return [int(value) for value in shared]

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum of `values` over the processes; with several, `values` is overwritten."""
        if self.world > 1:
            dist.all_reduce(values)
        return values

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean of `values` over the processes; with several, `values` is overwritten."""
        return self.sum(values) / self.world if self.world > 1 else values


SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
# SIGTERM is shielded only where `sigwaitinfo` exists (not on macOS): without it, a data loader's
# worker cannot find out which process sent the signal (`prepare_worker`).
SHIELDED = SIGNALS if hasattr(signal, "sigwaitinfo") else (signal.SIGUSR1, signal.SIGINT)


class Interruption(ExitStack):
    """Record the last of `SIGNALS` that arrives in a `with` block, instead of ending the process.

    In `with Interruption() as interruption`, `interruption.signal` is 0 until one arrives, then its
    number. At the end of the block the previous handlers are restored. Outside the main thread,
    where Python delivers no signals, nothing is recorded.
    """

    def __init__(self) -> None:
        super().__init__()
        self.signal = 0

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self.callback(signal.signal, number, signal.signal(number, self._note))
        return super().__enter__()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number


@contextmanager
def shielded() -> Iterator[None]:
    """Block `SHIELDED` in processes that start within the `with` block.

    A cluster sends its signal to every process of a training. If it ended a data loader's worker,
    the training would fail in the middle of a step. Workers are ended by the training only
    (`prepare_worker`).
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SHIELDED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
