"""What the executor decides without asking SLURM; tests/cluster has the rest."""

from types import SimpleNamespace

import pytest
from snakemake.exceptions import WorkflowError
from snakemake.iocontainers import ResourceList
from snakemake_executor_plugin_slurm.partitions import Partition, PartitionLimits

import snakemake_executor_plugin_vitrail_slurm as plugin


@pytest.mark.parametrize(
    "reason",
    [
        "PartitionTimeLimit",
        "BadConstraints",
        "QOSMaxWallDurationPerJobLimit",
        "AssocMaxNodePerJobLimit",
        "JobHoldMaxRequeue",
        "launch failed requeued held",
    ],
)
def test_a_reason_that_stays_is_known(reason):
    assert plugin.LASTING.fullmatch(reason)


@pytest.mark.parametrize(
    "reason", ["Resources", "Priority", "ReqNodeNotAvail", "AssocGrpGRES", "QOSMaxJobsPerUserLimit"]
)
def test_a_reason_that_passes_is_not_told(reason):
    assert not plugin.LASTING.fullmatch(reason)


@pytest.mark.parametrize(
    "said",
    [
        "Invalid account or account/partition combination specified",
        "invalid partition specified: gpus",
        "Requested node configuration is not available",
        "Requested time limit is invalid (missing or exceeds some limit)",
        "Memory specification can not be satisfied",
        "sbatch: error: QOSMaxGRESPerJob",
        "User's group not permitted to use this partition",
        "/bin/sh: 1: sbatch: not found",
    ],
)
def test_a_refusal_that_stays_is_known(said):
    assert plugin.FINAL_REFUSAL.search(said)


@pytest.mark.parametrize(
    "said",
    [
        "sbatch: error: QOSMaxSubmitJobPerUserLimit",
        "sbatch: error: AssocMaxSubmitJobLimit",
        "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
        "Unable to contact slurm controller (connect failure)",
        "Socket timed out on send/recv operation",
        "Invalid authentication credential",
        "Resource temporarily unavailable",
    ],
)
def test_a_refusal_that_passes_is_waited_for(said):
    assert not plugin.FINAL_REFUSAL.search(said)


@pytest.mark.parametrize(("asked", "given"), [(30, 30), (2880, 600)])
def test_time_is_cut_to_the_longest_partition_that_has_what_a_job_needs(asked, given):
    partitions = [
        Partition("cpu", PartitionLimits(max_runtime=9000)),
        Partition("short", PartitionLimits(max_runtime=60, max_gpu=8)),
        Partition("long", PartitionLimits(max_runtime=600, max_gpu=8)),
    ]
    said = []
    executor = SimpleNamespace(_partitions=partitions, logger=SimpleNamespace(info=said.append))
    job = SimpleNamespace(
        jobid=1,
        threads=1,
        is_group=lambda: False,
        resources=ResourceList(fromdict={"gpu": 8, "runtime": asked}),
    )
    longest = plugin.Executor._most(executor, job, "runtime")
    plugin.Executor._cut(executor, job, longest, "the partitions")
    assert longest == 600
    assert job.resources.runtime == given
    assert len(said) == (asked > given)


def test_a_job_without_a_gpu_gets_the_time_of_the_partitions_without_one():
    partitions = [
        Partition("cpu", PartitionLimits(max_runtime=30)),
        Partition("gpu", PartitionLimits(max_runtime=600, max_gpu=8)),
    ]
    job = SimpleNamespace(
        threads=1, is_group=lambda: False, resources=ResourceList(fromdict={"runtime": 120})
    )
    for these, longest in ((partitions, 30), (partitions[1:], 600)):
        executor = SimpleNamespace(_partitions=these)
        assert plugin.Executor._most(executor, job, "runtime") == longest


def test_a_mistake_in_the_partition_file_is_told_before_anything_begins(monkeypatch, tmp_path):
    monkeypatch.setattr(plugin.shutil, "which", lambda program: program)
    file = tmp_path / "partitions.yaml"
    file.write_text("partitions:\n  gpu:\n    max_gpus: 8\n")
    executor = plugin.Executor.__new__(plugin.Executor)
    settings = SimpleNamespace(partition_config=file)
    executor.workflow = SimpleNamespace(executor_settings=settings)
    with pytest.raises(WorkflowError, match=r"partitions\.yaml:3: unknown key 'partitions\.gpu"):
        executor.__post_init__()


def test_where_there_is_no_slurm_nothing_begins(monkeypatch):
    """Local jobs, such as downloads, would run before the first submission fails."""
    monkeypatch.setattr(plugin.shutil, "which", lambda _program: None)
    executor = plugin.Executor.__new__(plugin.Executor)
    with pytest.raises(WorkflowError, match="sbatch is not on the PATH"):
        executor.__post_init__()
