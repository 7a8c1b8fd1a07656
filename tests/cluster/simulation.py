"""The executor on a simulated SLURM, with a scheduler that retries jobs as Snakemake's does."""

import asyncio
import os
from contextlib import contextmanager, nullcontext
from fractions import Fraction
from types import SimpleNamespace
from unittest import mock

import snakemake_executor_plugin_slurm
from snakemake.iocontainers import ResourceList
from snakemake_executor_plugin_slurm.partitions import Partition, PartitionLimits
from snakemake_interface_executor_plugins.settings import SharedFSUsage

import snakemake_executor_plugin_vitrail_slurm as plugin
from tests.cluster.simulated_slurm import NEVER, installed


class Job:
    """A job as the executor sees Snakemake's: each attempt asks for what the rule says."""

    def __init__(self, number, target, retries, asked):
        self.jobid, self.target, self.restart_times, self._asked = number, target, retries, asked
        self.name = "train" if target.resumes else "evaluate"
        self.rule = SimpleNamespace(name=self.name)
        self.wildcards = [target.name]
        self.threads, self.is_local = 1, False
        self.output, self.log = [str(target.output)], [str(target.log)]
        self.errors, self.over = [], False
        self.attempt = 1

    @property
    def attempt(self):
        """The attempt, of which setting it forgets what was asked for, as in Snakemake."""
        return self._attempt

    @attempt.setter
    def attempt(self, number):
        self._attempt, self.resources = number, ResourceList(fromdict=dict(self._asked))

    def is_group(self):
        return False

    def log_info(self):
        pass

    def log_error(self, msg=None, **_):
        self.errors.append(msg)

    def register(self, external_jobid=None):
        pass


class Simulation:
    """Snakemake's part: at most `at_once` jobs are with the executor, each with so many `retries`.

    `asked` are resources of each job, over those that a target needs. While the terminal is stopped
    (`stopped` has (from, until) in seconds) time passes and nothing is asked. `told_to_end` is the
    second of a SIGTERM.
    """

    def __init__(
        self,
        slurm,
        folder,
        *,
        at_once=100,
        retries=5,
        asked=(),
        stopped=(),
        minutes=60,
        told_to_end=NEVER,
        **settings,
    ):
        self.slurm, self.at_once, self.stopped = slurm, at_once, stopped
        self.told_to_end, self._user_kill = told_to_end, None
        self.said = []
        self.jobs = [
            Job(
                number,
                target,
                retries,
                {"runtime": minutes, "mem_mb": 1000, "gpu": target.gpus, **dict(asked)},
            )
            for number, target in enumerate(slurm.targets.values())
        ]
        self.ready, self.running = list(self.jobs), []
        self.made, self.failed = [], []
        self._folder, self._settings = folder, settings
        self.checked = False

    @contextmanager
    def _executor(self):
        tell = lambda message, **_: self.said.append(str(message))  # noqa: E731
        quiet = lambda *_, **__: None  # noqa: E731
        logger = SimpleNamespace(info=quiet, debug=quiet, warning=tell, error=tell)
        general = SimpleNamespace(init_seconds_before_status_checks=40)
        workflow = SimpleNamespace(
            executor_settings=plugin.ExecutorSettings(
                logdir=self._folder / "slurm",
                status_command="squeue",
                delete_logfiles_older_than=0,
                **self._settings,
            ),
            remote_execution_settings=SimpleNamespace(
                max_status_checks_per_second=Fraction(10),
                seconds_between_status_checks=10,
                jobname="snakejob.{jobid}",
                jobscript=None,
                immediate_submit=False,
            ),
            storage_settings=SimpleNamespace(shared_fs_usage=SharedFSUsage.all()),
            executor_plugin=SimpleNamespace(common_settings=general),
            main_snakefile="Snakefile",
            workdir_init=str(self._folder),
            dag=None,
            scheduler=self,
        )
        with (
            installed(self.slurm),
            mock.patch.dict(os.environ),
            mock.patch.object(
                plugin.Executor, "_wait_thread", lambda executor: self._check(executor)
            ),
            mock.patch.object(snakemake_executor_plugin_slurm, "atexit"),
            mock.patch.object(plugin, "monotonic", self._time),
        ):
            executor = plugin.Executor(workflow, logger)
            executor.wait_thread.join()
            assert self.checked
            executor._job_submission_executor.shutdown()
            executor._job_submission_executor = SimpleNamespace(
                submit=lambda work, *arguments: work(*arguments)
            )
            executor._partitions = [
                Partition("cpu", PartitionLimits()),
                Partition("gpu", PartitionLimits(max_gpu=8)),
            ]
            executor.status_rate_limiter = nullcontext()
            executor.format_job_exec = lambda job: job.target.name
            yield executor

    def _check(self, executor):
        """Check, as the executor's own thread does as soon as it is begun."""
        asyncio.run(_checked(executor, []))
        self.checked = True

    def run(self, days=10):
        """Run until every job is made or given up, or for so many days; return `self`."""
        with self._executor() as executor, asyncio.Runner() as loop:
            self._submit(executor)
            self._sleep(executor, 40)
            while self.waiting and self.slurm.now < days * 86400:
                active, executor.active_jobs = executor.active_jobs, []
                executor.active_jobs += loop.run(_checked(executor, active))
                self._submit(executor)
                if self.waiting:
                    self._sleep(executor, executor.next_seconds_between_status_checks)
        return self

    def _time(self):
        return self.slurm.now

    def _sleep(self, executor, seconds):
        """Let time pass until the next look: longer while the terminal is stopped."""
        before = min(seconds, max(0, self.told_to_end - self.slurm.now))
        for part in (before, seconds - before):
            if not executor.is_called():
                self.slurm.advance(part)
            for start, end in self.stopped:
                if start <= self.slurm.now < end:
                    self.slurm.advance(end - self.slurm.now)
            if self.slurm.now >= self.told_to_end:
                self._user_kill = "graceful"

    def _submit(self, executor):
        """Hand over the jobs that are ready, as many as may be with the executor."""
        count = 0 if self._user_kill else self.at_once - len(self.running)
        jobs, self.ready = self.ready[:count], self.ready[count:]
        self.running += jobs
        if jobs:
            executor.run_jobs(jobs)

    @property
    def waiting(self):
        """The jobs that have not ended, and whose end Snakemake waits for."""
        return [*self.running, *([] if self._user_kill else self.ready)]

    # As snakemake.scheduling.job_scheduler does

    def submit_callback(self, job):
        """A job is in the queue."""

    def finish_callback(self, job):
        """A job is said to be made: one whose output is missing has failed."""
        if not job.target.output.exists():
            job.errors.append("output is missing")
            self.error_callback(job)
            return
        self.running.remove(job)
        self.made.append(job)

    def error_callback(self, job):
        """A job has failed: it is ready again while it has attempts left."""
        self.running.remove(job)
        if job.restart_times > job.attempt - 1:
            job.attempt += 1
            self.ready.append(job)
        else:
            self.failed.append(job)


async def _checked(executor, active):
    return [info async for info in executor.check_active_jobs(active)]
