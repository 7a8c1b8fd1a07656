"""What the executor decides without asking SLURM; tests/cluster has the rest."""

from types import SimpleNamespace

import pytest
from snakemake.iocontainers import ResourceList
from snakemake_executor_plugin_slurm.partitions import Partition, PartitionLimits

import snakemake_executor_plugin_vitrail_slurm as plugin


@pytest.fixture
def logs(tmp_path):
    """The log of a rule and the one that SLURM keeps, with what they hold; None is not there."""

    def write(rule, slurm):
        for name, text in {"rule": rule, "slurm": slurm}.items():
            if text is not None:
                (tmp_path / name).write_text(text)
        return [str(tmp_path / "rule")], [str(tmp_path / "slurm")]

    return write


SENTENCE = "one\nvitrail: runs/a is being trained by job 4\nERROR: torchrun failed\n"


@pytest.mark.parametrize(("rule", "slurm"), [(SENTENCE, ""), (None, SENTENCE)])
def test_a_job_that_told_a_mistake_is_final(logs, rule, slurm):
    assert plugin._is_final(*logs(rule, slurm))


@pytest.mark.parametrize("rule", [None, "", "Traceback ...\nRuntimeError: CUDA error\n"])
def test_any_other_failure_is_not(logs, rule):
    assert not plugin._is_final(*logs(rule, "slurmstepd: error: cancelled\n"))


def test_a_job_that_never_started_is_not_judged_by_an_older_log(logs):
    assert not plugin._is_final(*logs(SENTENCE, None))


@pytest.mark.parametrize(
    "reason",
    [
        "PartitionTimeLimit",
        "BadConstraints",
        "QOSMaxWallDurationPerJobLimit",
        "AssocMaxNodePerJobLimit",
    ],
)
def test_a_reason_that_stays_is_known(reason):
    assert plugin.LASTING.fullmatch(reason)


@pytest.mark.parametrize(
    "reason", ["Resources", "Priority", "ReqNodeNotAvail", "AssocGrpGRES", "QOSMaxJobsPerUserLimit"]
)
def test_a_reason_that_passes_is_not_told(reason):
    assert not plugin.LASTING.fullmatch(reason)


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
        jobid=1, threads=1, resources=ResourceList(fromdict={"gpu": 8, "runtime": asked})
    )
    longest = plugin.Executor._longest(executor, job)
    plugin.Executor._cut(executor, job, longest, "the partitions")
    assert longest == 600
    assert job.resources.runtime == given
    assert len(said) == (asked > given)
