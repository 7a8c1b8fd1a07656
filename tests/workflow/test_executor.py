"""What the executor decides without asking SLURM; tests/cluster has the rest."""

import asyncio
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from snakemake.exceptions import WorkflowError
from snakemake.iocontainers import ResourceList
from snakemake.scheduling.job_scheduler import JobScheduler
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


def test_what_slurm_says_in_other_letters_is_read(monkeypatch):
    """A site's comment, or a user's name, may be in any encoding, whatever this locale has."""
    monkeypatch.setenv("LC_ALL", "C")
    said = plugin._ask("printf", r"caf\303\251 caf\351")
    assert (said.returncode, said.stdout) == (0, "café caf\N{REPLACEMENT CHARACTER}")


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
    assert plugin.PASSING_REFUSAL.search(said)


@pytest.mark.parametrize(
    "said",
    [
        "sbatch: error: You must specify an account!",
        "sbatch: error: Batch job submission failed: Unspecified error",
        "sbatch: error: Please ask for 2 nodes",
        "sbatch: error: A time limit is required here",
    ],
)
def test_the_words_of_a_sites_own_rules_are_in_no_list(said):
    assert not plugin.FINAL_REFUSAL.search(said)
    assert not plugin.PASSING_REFUSAL.search(said)


def executor_with(**state):
    """An executor that was never started, with jobs that wait and with Snakemake's scheduler."""
    executor = plugin.Executor.__new__(plugin.Executor)
    scheduler = JobScheduler.__new__(JobScheduler)
    scheduler._lock, scheduler._open_jobs = threading.Lock(), threading.Semaphore(0)
    scheduler._errors, scheduler._user_kill, scheduler.keepgoing = False, None, True
    executor.workflow = SimpleNamespace(scheduler=scheduler)
    executor.wait, executor.lock, executor.active_jobs = True, threading.Lock(), []
    executor._refused, executor._put_off = deque(["refused"]), [(1e9, "put off")]
    vars(executor).update(state)
    return executor


def test_the_executor_is_called_when_snakemake_is_told_to_end_while_jobs_wait():
    executor = executor_with()
    assert not executor.is_called()
    executor.workflow.scheduler.exit_gracefully()  # what Snakemake does at a SIGTERM
    assert executor.is_called()
    executor._refused.clear()
    assert executor.is_called()
    executor._put_off.clear()
    assert not executor.is_called()


@pytest.mark.parametrize(("keepgoing", "called"), [(True, False), (False, True)])
def test_a_failed_job_ends_what_waits_unless_snakemake_keeps_going(keepgoing, called):
    executor = executor_with()
    scheduler = executor.workflow.scheduler
    scheduler._errors, scheduler.keepgoing = True, keepgoing
    assert executor.is_called() == called


def test_what_waits_is_submitted_by_one_thread_at_a_time(monkeypatch):
    """While SLURM is silent a submission lasts as long as its queries, and looks go on."""
    executor = executor_with(_job_submission_executor=ThreadPoolExecutor(1), _submission=None)
    begun, silent = [], threading.Event()

    def submit(_):
        begun.append(True)
        silent.wait()

    monkeypatch.setattr(plugin.Executor, "_submit_waiting", submit)
    for _ in range(3):
        executor._submit_if_due()
    silent.set()
    executor._job_submission_executor.shutdown()
    assert len(begun) == 1


def test_looks_after_the_end_are_a_second_apart_at_least(monkeypatch):
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    executor = executor_with(wait=False, _next_seconds_between_status_checks=600)
    monkeypatch.setattr(plugin.asyncio, "sleep", sleep)
    asyncio.run(executor.sleep())
    assert sum(slept) >= 1


def test_ctrl_c_does_not_wait_for_the_next_look_at_the_queue():
    executor = executor_with(wait=False, _next_seconds_between_status_checks=600)
    asyncio.run(asyncio.wait_for(executor.sleep(), 10))


def test_what_is_being_submitted_at_ctrl_c_is_cancelled_and_the_rest_never_submitted(monkeypatch):
    executor = executor_with(_job_submission_executor=ThreadPoolExecutor(1))
    begun, cancelled = threading.Event(), []

    def submit():
        begun.set()
        while executor._refused:  # until `cancel` has begun
            pass
        executor.active_jobs.append("being submitted")
        executor._refused.append("refused again")

    monkeypatch.setattr(plugin.Executor, "cancel_jobs", lambda _, jobs: cancelled.extend(jobs))
    monkeypatch.setattr(plugin.Executor, "shutdown", lambda _: None)
    executor._job_submission_executor.submit(submit)
    begun.wait()
    executor.cancel()
    assert cancelled == ["being submitted"]
    assert not executor._refused
    assert not executor._put_off


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
