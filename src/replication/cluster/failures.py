"""How a step of the graph failed, written to a file for the executor that submitted it.

Neither SLURM nor Snakemake passes on the exit status of a step: torchrun, srun and the snakemake
inside the job each replace it by their own. So the innermost command writes its exit status and its
machine to a file that is named after its SLURM job, in a folder that the executor gives in the
environment. A failure thus counts for its own job only.

There are three kinds of failure (`USER_ERROR`, `BAD_MACHINE`, `RUN_LOCKED`). A step that ends in
any other way (a bug, a signal, out of memory) writes nothing.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from replication.config.settings import snakemake_command
from replication.records.nodes import AnyNode, TrainingNode
from vitrail.errors import VitrailError, sentence
from vitrail.files import Locked, atomic_path, lock
from vitrail.provenance import require_gpu_build

# Exit statuses, after sysexits.h. `vitrail run` has no others besides 0 and 1.
USER_ERROR = 2  # a mistake of the user or a broken input: the step would fail again
BAD_MACHINE = os.EX_UNAVAILABLE  # this machine lacks what the step needs; another may have it
RUN_LOCKED = os.EX_TEMPFAIL  # another process works in the folder: the step must wait for it

# Errors of the operating system after a machine has lost its disk, its network or its mounts.
SICK = (errno.EIO, errno.ESTALE, errno.ENODEV, errno.ENOTCONN, errno.ESHUTDOWN)


FOLDER = "VITRAIL_FAILURES"  # the environment variable with the folder for failures


@dataclass(frozen=True)
class Failure:
    """How a step failed: its exit status, and the machine on which it ran."""

    status: int
    machine: str

    def write(self, folder: Path, job: str) -> None:
        """Write the failure to the file of a SLURM job.

        Raises:
            VitrailError: it cannot be written.
        """
        # Not durable: a faulty disk may never confirm the write.
        with atomic_path(folder / f"{job}.json", durable=False) as temporary:
            temporary.write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path, job: str) -> Failure | None:
        """Return the failure that a SLURM job wrote; None if it wrote nothing that can be read."""
        try:
            return cls(**json.loads((folder / f"{job}.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None


@contextmanager
def explained(node: AnyNode | None = None) -> Iterator[None]:
    """Exit with the status of the block's failure; in a job, also write it for the executor.

    Args:
        node: the node that the block does; None if the block must still read it.

    Raises:
        VitrailError: the block's own error, if the user can correct it; its text then has the
            complete command to run.
        SystemExit: with `BAD_MACHINE` or `RUN_LOCKED`, after the block's error was printed.
    """
    try:
        yield
    except (VitrailError, OSError) as error:
        status = _status(error, node)
        if status is None:
            raise
        _note(status)
        if isinstance(error, VitrailError):
            told = written_out(sentence(error), node)
        else:
            told = traceback.format_exc()
        if status == USER_ERROR:
            raise VitrailError(told) from error
        print(f"vitrail: {told}", file=sys.stderr)
        raise SystemExit(status) from None


def written_out(told: str, node: AnyNode | None) -> str:
    """Complete the command in a sentence, so that it can be run as it is written.

    The command is ``snakemake TARGET --forcerun RECORD``, since the code that trains, measures and
    draws knows neither target nor settings. TARGET is replaced by the node's output, with the
    settings that the node was planned with, and RECORD by the record that the sentence names.
    Without a node, return the sentence unchanged.
    """
    if node is None:
        return told
    for path in (*node.inputs, node.output):
        if re.search(rf"{re.escape(str(path))}\b", told):
            told = told.replace("RECORD", shlex.quote(str(path)))
    command = snakemake_command(str(node.output), config=node.config)
    return told.replace("snakemake TARGET", command)


def _note(status: int) -> None:
    folder, job = os.environ.get(FOLDER), os.environ.get("SLURM_JOB_ID")
    if not folder or not job:
        return
    if array := os.environ.get("SLURM_ARRAY_JOB_ID"):
        job = f"{array}_{os.environ.get('SLURM_ARRAY_TASK_ID')}"
    machine = os.environ.get("SLURMD_NODENAME", os.uname().nodename)
    with suppress(VitrailError):  # a faulty machine may not be able to write
        Failure(status, machine).write(Path(folder), job)


def _status(error: Exception, node: AnyNode | None) -> int | None:
    """Return the exit status for an error; None for a bug, whose traceback is shown.

    An error that was raised in another process (a worker that loads images, the first of several
    ranks) arrives without its cause, but its text still has the operating system's message.
    """
    if any(os.strerror(number) in str(error) for number in SICK):
        return BAD_MACHINE
    if not isinstance(error, VitrailError):
        return None
    if getattr(node, "device", "cpu") == "cuda" and _lacks_device():
        return BAD_MACHINE
    is_rank_zero = os.environ.get("RANK", "0") == "0"  # only this process of torchrun's locks
    if isinstance(node, TrainingNode) and is_rank_zero:
        return RUN_LOCKED if _is_held(node.run.folder) else USER_ERROR
    return USER_ERROR


def _lacks_device() -> bool:
    """Tell whether this machine has no GPU for this process; each process of torchrun needs one.

    False for a build of torch for CPUs, which finds no GPU on any machine.
    """
    import torch

    try:
        require_gpu_build()
    except VitrailError:
        return False
    return torch.cuda.device_count() <= int(os.environ.get("LOCAL_RANK", "0"))


def _is_held(folder: Path) -> bool:
    """Tell whether another process holds the lock of a run's folder."""
    if not folder.is_dir():
        return False
    try:
        with lock(folder / ".lock"):
            return False
    except Locked:
        return True
    except VitrailError:  # the lock failed for another reason
        return False
