"""What the SLURM of a machine answers."""

import math

import pytest

from replication.cluster.slurm import accounts, controller, limits


@pytest.fixture
def answers(tmp_path, monkeypatch):
    """Put a client of SLURM on an otherwise empty PATH, whose programs are these scripts."""

    def put(scontrol="exit 1", sacctmgr="exit 1", sinfo="exit 1"):
        scripts = {"sbatch": "exit 0", "scontrol": scontrol}
        scripts |= {"sacctmgr": sacctmgr, "sinfo": sinfo}
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


def test_limits_are_those_that_sinfo_prints(answers):
    assert limits() == {}
    answers(sinfo="echo 'slurm_load_partitions: Unable to contact slurm controller'; exit 1")
    assert limits() == {}
    times = {"a": "30:00", "b-1": "12:00:59", "c": "2-01:30:00", "d": "infinite"}
    lines = [f"{name}|{time}|16|64000|(null)" for name, time in times.items()]
    asked = '[ "$4" = "--format=%R|%l|%c|%m|%G" ] || exit 1'
    answers(sinfo="\n".join([asked, *(f"echo '{line}'" for line in lines)]))
    minutes = {name: each["max_runtime"] for name, each in limits().items()}
    assert minutes == {"a": 30, "b-1": 720, "c": 49 * 60 + 30, "d": math.inf}
    of_node = {"max_gpu": 0, "max_threads": 16, "max_mem_mb": 64000}
    assert limits()["a"] == {"max_runtime": 30, **of_node}


@pytest.mark.parametrize(
    ("resources", "gpus"),
    [
        ("gpu:8", 8),
        ("gpu:a100:4(S:0-1),nvme:2", 4),
        ("gpu:1g.5gb:3,gpu:a100:2(S:0)", 5),
        ("shard:64", 0),
    ],
)
def test_gpus_are_those_of_the_node_that_has_most(answers, resources, gpus):
    lines = [f"gpu|infinite|{node}" for node in ("8|128000|gpu:1", f"16|64000|{resources}")]
    answers(sinfo="\n".join(f"echo '{line}'" for line in lines))
    assert limits()["gpu"] == {
        "max_runtime": math.inf,
        "max_gpu": max(1, gpus),
        "max_threads": 16,
        "max_mem_mb": 128000,
    }


def test_accounts_are_those_that_sacctmgr_prints(answers):
    assert accounts() == set()
    answers("", "echo 'You are not running a supported accounting_storage plugin'; exit 1")
    assert accounts() == set()
    answers("", "echo Vision; echo vision; echo; echo robots")
    assert accounts() == {"vision", "robots"}
