"""A step that fails says by its exit status, and to the executor, of what kind its failure was."""

import errno
import os
import subprocess
import sys

import pytest
import torch

from replication.cluster.failures import (
    BAD_MACHINE,
    FOLDER,
    RUN_LOCKED,
    USER_ERROR,
    Failure,
    explained,
)
from replication.plan.catalog import load_catalog
from replication.training.model_factory import torch_device
from vitrail.errors import VitrailError, os_errors

HOLD = """
import sys
from pathlib import Path
from vitrail.files import lock
with lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def training(root, tmp_path):
    """A node that trains a seed, its run in a folder of the test."""
    catalog = load_catalog(root, runs_root=str(tmp_path / "runs"), scale="laptop")
    run = catalog.paper("variance").run("vit_s-mixup0.0-cutmix0.0")
    return catalog.training_node(run)


@pytest.fixture
def failures(monkeypatch, tmp_path):
    """The folder of failures of SLURM job 7 on node n3."""
    folder = tmp_path / "failures"
    monkeypatch.setenv(FOLDER, str(folder))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURMD_NODENAME", "n3")
    for name in ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    return folder


def fail(node, error):
    """Let a step fail; returns the status that it exits with, if it does."""
    try:
        with explained(node):
            raise error
    except SystemExit as ended:
        return ended.code
    except VitrailError:
        return USER_ERROR
    except OSError:
        return None


def system_error(number):
    return OSError(number, os.strerror(number))


def wrapped(error):
    try:
        with os_errors("cannot write runs/a", "make room there"):
            raise error
    except VitrailError as told:
        return told


@pytest.mark.slow
@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ENOTCONN])
@pytest.mark.parametrize(
    "form",
    [
        lambda error: error,
        wrapped,
        lambda error: VitrailError(f"Traceback ...\nOSError: {error}"),  # of a worker
    ],
)
def test_a_disk_that_does_not_answer_is_a_failure_of_the_place(training, failures, number, form):
    assert fail(training, form(system_error(number))) == BAD_MACHINE
    assert Failure.read(failures, "7") == Failure(BAD_MACHINE, "n3")


def test_a_node_that_cannot_be_read_is_judged_like_the_work_itself(failures):
    assert (
        fail(None, VitrailError(f"a.json is no node ({system_error(errno.ESTALE)})")) == BAD_MACHINE
    )
    assert fail(None, VitrailError("a.json is no node (empty)")) == USER_ERROR


@pytest.mark.parametrize(("build", "status"), [("13.0", BAD_MACHINE), (None, USER_ERROR)])
def test_a_node_without_a_cuda_device_is_a_failure_of_the_place_unless_torch_is_for_cpus(
    training, failures, monkeypatch, build, status
):
    monkeypatch.setattr(torch.version, "cuda", build)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(VitrailError) as told:
        torch_device("cuda")
    on_cuda = training.model_copy(update={"device": "cuda"})
    assert fail(on_cuda, told.value) == status
    assert fail(training, told.value) == USER_ERROR


@pytest.mark.slow
@pytest.mark.parametrize(
    "error", [VitrailError("recipe a is wrong"), wrapped(system_error(errno.ENOSPC))]
)
def test_what_the_user_can_put_right_is_wrong_everywhere(training, failures, error):
    assert fail(training, error) == USER_ERROR
    assert Failure.read(failures, "7") == Failure(USER_ERROR, "n3")


def test_a_bug_leaves_its_traceback_and_no_failure(training, failures):
    assert fail(training, system_error(errno.ENOENT)) is None
    assert Failure.read(failures, "7") is None


def test_a_run_that_another_process_trains_is_to_be_tried_later(training, failures):
    seed = training.run.folder
    seed.mkdir(parents=True)
    busy = VitrailError("runs/a is being trained by SLURM job 4")
    assert fail(training, busy) == USER_ERROR
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(seed / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout.readline() == b"held\n"
        assert fail(training, busy) == RUN_LOCKED
        holder.stdin.close()
    assert Failure.read(failures, "7").status == RUN_LOCKED


def test_a_failure_counts_for_its_own_job_and_for_no_other(training, failures, monkeypatch):
    fail(training, VitrailError("wrong"))
    assert Failure.read(failures, "8") is None
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "5")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "2")
    fail(training, system_error(errno.EIO))
    assert Failure.read(failures, "5_2").status == BAD_MACHINE


def test_nothing_is_written_outside_of_a_job_of_the_executor(training, failures, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID")
    assert fail(training, VitrailError("wrong")) == USER_ERROR
    assert not failures.exists()


def test_a_failure_that_cannot_be_written_changes_no_status(training, failures):
    failures.write_text("no folder")
    assert fail(training, system_error(errno.EIO)) == BAD_MACHINE


def test_the_command_exits_with_the_status_of_its_failure(vitrail, tmp_path, failures):
    done = vitrail("run", tmp_path / "absent.json")
    assert done.code == USER_ERROR
    assert done.err.startswith("vitrail: ")
    assert Failure.read(failures, "7") == Failure(USER_ERROR, "n3")
