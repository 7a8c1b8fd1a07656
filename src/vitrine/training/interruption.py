"""SIGTERM, SIGUSR1 and Ctrl-C ask a training to stop; it answers between two steps.

A cluster sends them before it takes a node away. The handler only notes the signal: the loop
finishes its step, saves a checkpoint and leaves with 128 + signal, so that the job counts as
failed and is started again, to resume.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class Interruption:
    """Within `with Interruption() as interruption`, `interruption.signal` is 0 until one comes.

    On leaving, the handlers of before are back. Outside the main thread, where Python delivers no
    signals, it listens to nothing.
    """

    def __init__(self) -> None:
        self.signal = 0
        self._before: dict[signal.Signals, signal._HANDLER] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number


@contextmanager
def shielded() -> Iterator[None]:
    """Let processes that start within the block never see these signals.

    A cluster signals the whole job. A loader's worker that died of it would take the training down
    in the middle of a step; it is the training that ends its workers.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
