"""A real SLURM on this machine, what its records say about the jobs, and machines without one."""

import os
import re
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

LOCAL_SLURM = Path(__file__).parent / "local_slurm.sh"
REFUSED = 3  # the status with which local_slurm.sh leaves where there can be no cluster


CONFIGURATION = Path("/etc/slurm/slurm.conf")


class Cluster:
    """The running scheduler; `folder` holds its logs and its record of ended jobs.

    It forgets a job five minutes after its end, as clusters do by default, so what it says of jobs
    is noted here every second.
    """

    def __init__(self, folder):
        self.folder = folder
        self._noted = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self):
        while CONFIGURATION.exists():
            with suppress(subprocess.CalledProcessError):
                self._note()
            time.sleep(1)

    def _note(self):
        shown = self.ask("scontrol", "--oneliner", "--details", "show", "job")
        with self._lock:
            for line in shown.splitlines():
                if line.startswith("JobId="):
                    record = _fields(line)
                    self._noted[int(record["JobId"])] = record

    def jobs(self, rule):
        """What the scheduler said last of a rule's jobs, in the order of their submission."""
        self._note()
        with self._lock:
            records = [record for _, record in sorted(self._noted.items())]
        return [
            record for record in records if record.get("Comment", "").startswith(f"rule_{rule}_")
        ]

    def named(self, name):
        """The same of the jobs of a name."""
        self._note()
        with self._lock:
            return [record for record in self._noted.values() if record["JobName"] == name]

    def remember(self, seconds):
        """Let the scheduler forget a job so long after its end."""
        text = CONFIGURATION.read_text()
        CONFIGURATION.write_text(re.sub(r"MinJobAge=\d+", f"MinJobAge={seconds}", text))
        self.ask("scontrol", "reconfigure")

    def knows(self, job):
        """Whether the scheduler has not forgotten a job."""
        listed = self.ask("squeue", "--noheader", "--states=all", "--format=%i").split()
        return job["JobId"] in listed

    def states(self, job):
        """How a job ended, each time that it did: one that SLURM queued anew more than once."""
        lines = (self.folder / "jobcomp.txt").read_text().splitlines()
        records = [record for record in map(_fields, lines) if record["JobId"] == job["JobId"]]
        return [record["JobState"] for record in records]

    def lose(self, node):
        """Let a node go down with all that runs on it, and come back."""
        os.kill(int((self.folder / f"slurmd.{node}.pid").read_text()), signal.SIGKILL)
        self.ask("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=lost")
        for file in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if f"SLURMD_NODENAME={node}".encode() in file.read_bytes().split(b"\0"):
                    os.kill(int(file.parent.name), signal.SIGKILL)
        subprocess.run(["slurmd", "-N", node], check=True)

    def limit(self, partition, minutes):
        """Give jobs that are submitted to a partition from now on at most so much time."""
        self.ask("scontrol", "update", f"PartitionName={partition}", f"MaxTime={minutes}")

    def ask(self, *command):
        """Run one of SLURM's commands."""
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _fields(line):
    """Read `Key=value Key=value`; a value may hold "=", and a word without one goes on the last."""
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def until(condition, seconds, what):
    """Wait until `condition()` is true, and return what it returned."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.2)
    raise TimeoutError(f"{what} took more than {seconds} s")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """Two nodes with eight fake GPUs each, gone when the tests end, however they end."""
    folder = tmp_path_factory.mktemp("slurm")
    with subprocess.Popen(
        [LOCAL_SLURM, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        if process.stdout.readline() != "ready\n":
            _, complaint = process.communicate()
            if process.returncode == REFUSED:
                pytest.skip(complaint)
            pytest.fail(complaint)
        yield Cluster(folder)
        process.stdin.close()


@pytest.fixture(scope="module", params=["sbatch on the PATH", "no sbatch"])
def any_path(request, tmp_path_factory):
    """A PATH with nothing of SLURM on it, or with an `sbatch` that none of these tests may call."""
    folder = tmp_path_factory.mktemp("path")
    called = folder / "called"
    if request.param != "no sbatch":
        (folder / "sbatch").write_text(f"#!/bin/sh\n: >'{called}'\nexit 1\n")
        (folder / "sbatch").chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder))
        yield
    assert not called.exists()
