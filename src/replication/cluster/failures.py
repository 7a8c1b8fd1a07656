"""How a step of the graph failed, written down for the executor that has submitted it.

Neither SLURM nor Snakemake tells the exit status of a step: torchrun, srun and the snakemake within
the job each replace it by their own. So the innermost command writes it, with its node, to a file
that is called by its SLURM job, in a folder that the executor names in the environment. A failure
so counts for its own job and for no other.

There are three kinds. A step that ends in any other way (a bug, a signal, out of memory) writes
nothing.
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

# Exit statuses, after sysexits.h. With 0 and 1 they are all that `vitrail run` has.
USER_ERROR = 2  # a mistake of the user or a broken input: the step would end so again
BAD_MACHINE = os.EX_UNAVAILABLE  # this machine lacks what the step needs: another one may have it
RUN_LOCKED = os.EX_TEMPFAIL  # another process works in the folder: its end is to be waited for

# Errors of the system by which a machine has lost its disk, its network or its mounts.
SICK = (errno.EIO, errno.ESTALE, errno.ENODEV, errno.ENOTCONN, errno.ESHUTDOWN)


FOLDER = "VITRAIL_FAILURES"  # in the environment of a job: where failures are written


@dataclass(frozen=True)
class Failure:
    """How a step failed: its exit status, and on which node."""

    status: int
    node: str

    def write(self, folder: Path, job: str) -> None:
        """Write it down for a SLURM job.

        Raises:
            VitrailError: it cannot be written.
        """
        # Not durable: a sick disk would not say when it is.
        with atomic_path(folder / f"{job}.json", durable=False) as temporary:
            temporary.write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path, job: str) -> Failure | None:
        """Return what a step of a SLURM job wrote; None if it wrote nothing that can be read."""
        try:
            return cls(**json.loads((folder / f"{job}.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None


@contextmanager
def explained(node: AnyNode | None = None) -> Iterator[None]:
    """Exit with the status of the failure of the block; in a job of the executor write it down.

    Args:
        node: the node that the block does; None if the block has still to read it.

    Raises:
        VitrailError: the block's own, where it is the user's to put right, with the command that it
            names written out.
        SystemExit: with `BAD_MACHINE` or `RUN_LOCKED`, when the block's error was printed.
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
    """Write out the command that a sentence names, so that it works as it is written.

    What trains, measures and draws knows neither target nor settings, and names the command
    ``snakemake TARGET --forcerun RECORD``: here TARGET is what the node makes, with the settings
    that it was planned with, and RECORD the record that the sentence names.
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
    node = os.environ.get("SLURMD_NODENAME", os.uname().nodename)
    with suppress(VitrailError):  # a sick node may not be able to
        Failure(status, node).write(Path(folder), job)


def _status(error: Exception, node: AnyNode | None) -> int | None:
    """The exit status for an error; None for a bug, whose traceback is shown.

    An error that another process has raised (a worker that loads images, the lead of several) comes
    without its cause. Its text still has the system's own message.
    """
    if any(os.strerror(number) in str(error) for number in SICK):
        return BAD_MACHINE
    if not isinstance(error, VitrailError):
        return None
    if getattr(node, "device", "cpu") == "cuda" and _lacks_device():
        return BAD_MACHINE
    is_rank_zero = os.environ.get("RANK", "0") == "0"  # of torchrun's processes, the one that locks
    if isinstance(node, TrainingNode) and is_rank_zero:
        return RUN_LOCKED if _is_held(node.run.folder) else USER_ERROR
    return USER_ERROR


def _lacks_device() -> bool:
    """Whether this machine has no GPU for this process, of torchrun's processes each its own.

    A build of torch for CPUs sees none on any machine, so that it is no fault of this one.
    """
    import torch

    try:
        require_gpu_build()
    except VitrailError:
        return False
    return torch.cuda.device_count() <= int(os.environ.get("LOCAL_RANK", "0"))


def _is_held(folder: Path) -> bool:
    """Whether another process holds the lock of a run's folder."""
    if not folder.is_dir():
        return False
    try:
        with lock(folder / ".lock"):
            return False
    except Locked:
        return True
    except VitrailError:  # which has another reason
        return False
