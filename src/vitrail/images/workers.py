"""What each worker of a loader is made to do, so that its parent never waits for it for ever."""

from __future__ import annotations

import os
import signal
import threading
import traceback
from multiprocessing.queues import Queue
from typing import Any


def prepare_worker(worker: int) -> None:
    """Let a worker end when its parent says so, and when it cannot hand over a batch.

    Torch and multiprocessing end a worker by SIGTERM and wait for its end. A training blocks
    SIGTERM in its workers, since a cluster sends it to all processes. There a thread of the worker
    waits for a SIGTERM of the parent, and then ends the worker.

    A batch is put into shared memory in a thread of the worker. An error there, as when
    the shared memory is full, would only be printed (pytorch/pytorch#5040).

    Args:
        worker: its number, as for every ``worker_init_fn`` of torch.
    """
    Queue._on_queue_feeder_error = staticmethod(_end)  # type: ignore[attr-defined]
    if signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, ()):
        threading.Thread(target=_heed, args=(os.getppid(),), daemon=True).start()


def _end(error: Exception, batch: Any) -> None:
    """Print an error and end this process, which its parent notices."""
    traceback.print_exception(error)
    os._exit(1)


def _heed(parent: int) -> None:
    """Wait for a SIGTERM of the parent, and end this process."""
    while signal.sigwaitinfo([signal.SIGTERM]).si_pid != parent:
        pass
    os._exit(0)
