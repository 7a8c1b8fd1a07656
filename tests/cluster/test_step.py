"""The command that puts a step on a node of an allocation, with an `srun` that tells its call."""

import os
import subprocess
from pathlib import Path

import pytest

from replication.cluster.failures import BAD_MACHINE, RUN_LOCKED, Failure

STEP = Path("profiles/allocation/step")


@pytest.fixture
def step(root, tmp_path):
    """Run a step; returns its exit status and how srun was called."""
    srun = tmp_path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text(
        "#!/bin/bash\n"
        'printf "%s\\n" "$@" >arguments\n'
        "env >environment\n"
        '[[ -z ${NOTE:-} ]] || cp "$NOTE" "$VITRAIL_FAILURES/5.json"\n'
        "exit ${STATUS:-0}\n"
    )
    srun.chmod(0o755)
    (tmp_path / "failures").mkdir()

    def run(*arguments, **variables):
        path = f"{srun.parent}:{os.environ['PATH']}"
        folder = {"PATH": path, "VITRAIL_FAILURES": str(tmp_path / "failures")}
        done = subprocess.run(
            [root / STEP, *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, **folder, **variables},
            check=False,
        )
        environment = dict(
            line.split("=", 1)
            for line in (tmp_path / "environment").read_text().splitlines()
            if "=" in line
        )
        return done.returncode, (tmp_path / "arguments").read_text().splitlines(), environment

    return run


def test_a_step_asks_for_its_own_share_and_for_one_node(step):
    status, arguments, _ = step(12, 64000, 2, "python", "-c", "pass")
    assert status == 0
    assert {"--nodes=1", "--ntasks=1", "--exact"} <= {*arguments}
    assert {"--cpus-per-task=12", "--mem=64000", "--gres=gpu:2"} <= {*arguments}
    assert arguments[-3:] == ["python", "-c", "pass"]


def test_a_step_without_gpus_takes_none_of_the_allocations(step):
    assert "--gres=none" in step(1, 2000, 0, "true")[1]


def test_what_the_allocation_has_is_not_what_a_step_asks_for(step):
    allocation = {"SLURM_JOB_ID": "5", "SLURM_GPUS_PER_NODE": "8", "SLURM_NNODES": "4"}
    _, _, environment = step(1, 2000, 1, "true", **allocation, SRUN_DEBUG="3")
    assert environment["SLURM_JOB_ID"] == "5"
    assert not {"SLURM_GPUS_PER_NODE", "SLURM_NNODES", "SRUN_DEBUG"} & {*environment}


def test_a_step_fails_as_its_command_does(step):
    assert step(1, 2000, 0, "false", STATUS="7")[0] == 7


def test_sick_nodes_are_left_out_by_the_steps_that_follow(step, tmp_path):
    failures = (BAD_MACHINE, "n3"), (BAD_MACHINE, "n1"), (BAD_MACHINE, "n3"), (RUN_LOCKED, "n2")
    for status, node in failures:
        Failure(status, node).write(tmp_path, "5")
        step(1, 2000, 0, "false", STATUS=str(status), NOTE=str(tmp_path / "5.json"))
    assert "--exclude=n1,n3" in step(1, 2000, 0, "true")[1]


def test_steps_that_succeed_leave_nothing_behind(step, tmp_path):
    _, arguments, _ = step(1, 2000, 0, "true")
    assert not any(argument.startswith("--exclude") for argument in arguments)
    assert not list((tmp_path / "failures").iterdir())
