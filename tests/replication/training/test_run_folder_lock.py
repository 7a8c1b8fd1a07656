import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from replication.datasets.download import alone
from replication.training.run_folder import exclusive
from vitrail.errors import VitrailError

HOLD = """
import sys
from pathlib import Path
from replication.training.run_folder import exclusive
with exclusive(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the folder."""
    environment = os.environ | {"SLURM_JOB_ID": "1234"}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.wait()


@pytest.mark.slow
def test_a_second_training_is_told_which_job_holds_the_folder(holder, tmp_path):
    with (
        pytest.raises(VitrailError, match=rf"SLURM job 1234 \(process {holder.pid} on .*\)"),
        exclusive(tmp_path / "run"),
    ):
        pytest.fail("entered")


@pytest.mark.slow
@pytest.mark.parametrize("leave", [Path.unlink, lambda note: note.write_text("")])
def test_a_holder_that_has_no_note_yet_or_no_longer_is_another_process(holder, tmp_path, leave):
    leave(tmp_path / "run" / ".lock-holder")
    with (
        pytest.raises(VitrailError, match="is being trained by another process: wait"),
        exclusive(tmp_path / "run"),
    ):
        pytest.fail("entered")


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_told(tmp_path, monkeypatch, number):
    def refuse(*args):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    said = rf"cannot lock {tmp_path}/run/\.lock \({os.strerror(number)}\), .*choose another folder"
    with pytest.raises(VitrailError, match=said), exclusive(tmp_path / "run"):
        pytest.fail("entered")
    lock = tmp_path / ".fetching"
    with pytest.raises(VitrailError, match=r"cannot lock .*\.fetching"), alone(lock, "a file"):
        pytest.fail("entered")


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("in the way")
    said = rf"cannot write to {tmp_path}/file/run \(Not a directory\): correct"
    with pytest.raises(VitrailError, match=said), exclusive(tmp_path / "file" / "run"):
        pytest.fail("entered")


@pytest.mark.slow
def test_a_killed_holder_holds_nothing(holder, tmp_path):
    holder.kill()
    holder.wait()
    with exclusive(tmp_path / "run"):
        assert (tmp_path / "run" / ".lock-holder").read_text().startswith("process ")


ORPHAN = """
import os, sys, time
from pathlib import Path
from replication.training.run_folder import exclusive
with exclusive(Path(sys.argv[1])):
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    print(child, flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_a_child_that_outlives_a_killed_holder_holds_nothing(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", ORPHAN, str(tmp_path / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    child = int(process.stdout.readline())
    time.sleep(0.1)  # the child's first thing is to let go
    with pytest.raises(VitrailError, match="is being trained"), exclusive(tmp_path / "run"):
        pytest.fail("entered")
    process.kill()
    process.wait()
    os.kill(child, 0)  # it lives
    with exclusive(tmp_path / "run"):
        os.kill(child, signal.SIGKILL)


def test_a_folder_is_free_again_after_an_error(tmp_path):
    with pytest.raises(RuntimeError), exclusive(tmp_path):
        raise RuntimeError
    with exclusive(tmp_path):
        pass
    assert not (tmp_path / ".lock-holder").exists()
