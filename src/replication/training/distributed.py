"""The processes of one training (one, or as many as torchrun has started), and their signals.

Rank 0 alone reads and writes the run folder. It sends what it has read to the other ranks, its
errors included, so that all continue or all stop. SIGTERM, SIGUSR1 and Ctrl-C, which a cluster
sends before it takes a node away, are only noted: the loop finishes its step, saves a checkpoint
and leaves with 128 + signal, so that the training counts as failed and is started again, to resume.
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
    """This process's place (`rank`) among `world` processes, and its device."""

    rank: int
    world: int
    device: torch.device

    @classmethod
    def assemble(cls, device: str) -> Team:
        """Join the processes that torchrun has started, if it has.

        Raises VitrailError if torch does not know the device, or this machine lacks it.
        """
        place = torch_device(device)
        if place.type == "cuda":
            torch.cuda.set_device(place)
        world = int(os.environ.get("WORLD_SIZE", 1))
        if world > 1 and not dist.is_initialized():
            # gloo beside nccl: agreeing on when to stop must not wait for the GPU.
            dist.init_process_group("cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo")
            atexit.register(dist.destroy_process_group)
        return cls(dist.get_rank() if world > 1 else 0, world, place)

    @property
    def is_rank_zero(self) -> bool:
        """Whether this is the process that writes in the run folder."""
        return self.rank == 0

    def on_rank_zero(self, work: Callable[[], Result]) -> Result:
        """Call `work` on rank 0 while the other ranks wait; all return its (picklable) result.

        A VitrailError of `work` is raised on rank 0; the other ranks then exit with status 2.
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
        """Call `work`, which must not wait for another rank, on each; all succeed or all stop.

        A VitrailError is raised on the first rank that met it; the other ranks exit with status 2.
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
        """Return, for each value, the largest that any process gave."""
        if self.world == 1:
            return list(values)
        shared = torch.tensor(values)
        dist.all_reduce(shared, dist.ReduceOp.MAX)
        return [int(value) for value in shared]

    def sum(self, values: Tensor) -> Tensor:
        """Add up `values` over the processes."""
        if self.world > 1:
            dist.all_reduce(values)
        return values

    def mean(self, values: Tensor) -> Tensor:
        """Average `values` over the processes."""
        return self.sum(values) / self.world if self.world > 1 else values


SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
# Without `sigwaitinfo`, as on macOS, a worker does not learn who sent SIGTERM (`prepare_worker`).
SHIELDED = SIGNALS if hasattr(signal, "sigwaitinfo") else (signal.SIGUSR1, signal.SIGINT)


class Interruption(ExitStack):
    """Within `with Interruption() as interruption`, `interruption.signal` is 0 until one comes.

    On leaving, the handlers of before are back. Outside the main thread, where Python delivers no
    signals, it listens to nothing.
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
    """Let processes that start within the block never see these signals.

    A cluster signals every process of a training. A loader's worker that died of it would take the
    training down in the middle of a step; only the training ends its workers (`prepare_worker`).
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SHIELDED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
