"""One training at a time in a run folder.

The lock is the kernel's, so it ends with its holder however that ends. Beside it lies a note of
who holds it: a workflow manager that was killed and unlocked can start a job while the first one
still runs, and the person must know which to cancel.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from vitrine.errors import VitrineError
from vitrine.files import Locked, lock, write_atomically


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the run folder (made if absent) while the block runs.

    Raises:
        VitrineError: another process holds it, or the folder cannot be written or locked.
    """
    note = folder / ".lock-holder"
    with ExitStack() as held:
        try:
            held.enter_context(lock(folder / ".lock"))
        except Locked:
            raise VitrineError(
                f"{folder} is being trained by {_holder(note)}: wait for it to end, or cancel it "
                "and start again"
            ) from None
        write_atomically(note, _myself())
        held.callback(note.unlink, missing_ok=True)
        yield


def _holder(note: Path) -> str:
    try:
        return note.read_text() or "another process"  # which has not written it yet,
    except OSError:  # or has ended since
        return "another process"


def _myself() -> str:
    job = os.environ.get("SLURM_JOB_ID")
    process = f"process {os.getpid()} on {socket.gethostname()}"
    return f"SLURM job {job} ({process})" if job else process
