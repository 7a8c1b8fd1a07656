"""One training at a time in a run folder.

The lock is the kernel's, so it ends with its holder however that ends. Beside it lies a note of
who holds it: a workflow manager that was killed and unlocked can start a job while the first one
still runs, and the person must know which to cancel.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from vitrine.errors import VitrineError


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the run folder (made if absent) while the block runs.

    Raises:
        VitrineError: another process holds it, or the folder cannot be written.
    """
    note = folder / ".lock-holder"
    lock = FileLock(folder / ".lock")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
        note.write_text(_myself())
    except Timeout:
        try:
            holder = note.read_text() or "another process"  # which has not written it yet,
        except OSError:  # or has ended since
            holder = "another process"
        raise VitrineError(
            f"{folder} is being trained by {holder}: wait for it to end, or cancel it and start "
            "again"
        ) from None
    except OSError as error:
        raise VitrineError(
            f"cannot write to {folder} ({error.strerror or error}): correct its permissions or "
            "choose another runs_root"
        ) from None
    try:
        yield
    finally:
        note.unlink(missing_ok=True)
        lock.release()  # the empty file stays: deleting it could free a lock just taken anew


def _myself() -> str:
    job = os.environ.get("SLURM_JOB_ID")
    process = f"process {os.getpid()} on {socket.gethostname()}"
    return f"SLURM job {job} ({process})" if job else process
