"""What the SLURM of a machine answers."""

import math

import pytest

from replication.cluster.slurm import accounts, controller, time_limits


@pytest.fixture
def answers(tmp_path, monkeypatch):
    """Put a client of SLURM on an otherwise empty PATH, whose scontrol is this script."""

    def put(script, sacctmgr="exit 1"):
        scripts = {"sbatch": "exit 0", "scontrol": script, "sacctmgr": sacctmgr}
        for name, text in scripts.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path))
    return put


def test_a_client_without_a_controller_is_not_a_cluster(answers):
    assert controller() == (False, "no client (sbatch is not on the PATH)")
    answers("echo 'Slurmctld is DOWN'; exit 1")
    assert controller()[0] is False
    answers("[ \"$*\" = ping ] && echo 'Slurmctld(primary) at here is UP'")
    assert controller() == (True, "controller up")


def test_time_limits_are_those_that_scontrol_prints(answers):
    assert time_limits() == {}
    answers("echo 'slurm_load_partitions: Unable to contact slurm controller'; exit 1")
    assert time_limits() == {}
    limits = {"a": "00:30:00", "b-1": "12:00:59", "c": "2-01:30:00", "d": "UNLIMITED"}
    lines = [
        f"PartitionName={name} DefaultTime=00:10:00 MaxTime={limit} MinNodes=0"
        for name, limit in limits.items()
    ]
    asked = '[ "$*" = "--all --oneliner show partition" ] || exit 1'
    answers("\n".join([asked, *(f"echo '{line}'" for line in lines)]))
    assert time_limits() == {"a": 30, "b-1": 720, "c": 49 * 60 + 30, "d": math.inf}


def test_accounts_are_those_that_sacctmgr_prints(answers):
    assert accounts() == set()
    answers("", "echo 'You are not running a supported accounting_storage plugin'; exit 1")
    assert accounts() == set()
    answers("", "echo Vision; echo vision; echo; echo robots")
    assert accounts() == {"vision", "robots"}
