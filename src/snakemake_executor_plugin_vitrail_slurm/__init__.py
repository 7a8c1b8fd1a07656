"""``--executor vitrail-slurm``: Snakemake's SLURM executor for jobs that resume from checkpoints.

It differs from the executor that it extends in three points, each of which would otherwise waste a
place in the queue or keep Snakemake waiting for ever:

- A job's time is cut to the limit of its partition: the next attempt goes on where it stopped.
- A job that ended with a `VitrailError` is not attempted again: it would end the same way.
- A job that waits in the queue for a reason that cannot pass is told to the user.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from snakemake_executor_plugin_slurm import Executor as SlurmExecutor
from snakemake_executor_plugin_slurm import ExecutorSettings, common_settings
from snakemake_executor_plugin_slurm.utils import parse_time_to_minutes

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

# Of SLURM's reasons for pending (squeue(1), "JOB REASON CODES"), those that neither time nor the
# end of other jobs removes.
LASTING = re.compile(
    "PartitionTimeLimit|PartitionNodeLimit|BadConstraints|AccountNotAllowed|QOSNotAllowed|"
    "InvalidAccount|InvalidQOS|JobHeldUser|JobHeldAdmin|DependencyNeverSatisfied|MaxMemPerLimit|"
    "(Assoc|QOS)M(ax|in).*(PerJob|Satisfied).*"
)


class Executor(SlurmExecutor):
    """Submits jobs, fits their time to the partition, and gives up on those that cannot pass."""

    def __post_init__(self, test_mode: bool = False) -> None:
        """Remember which waiting jobs the user was told of."""
        super().__post_init__(test_mode)
        self._told: set[tuple[str, str]] = set()

    def get_partition_arg(self, job: Any) -> str:
        """Choose the job's partition, and cut its time to what is possible there."""
        self._cut(job, self._longest(job), "the suitable partitions in the partition file")
        argument = super().get_partition_arg(job)
        if argument:
            partition = shlex.split(argument)[-1]
            self._cut(job, _time_limit(partition), f"partition {partition}")
        return argument

    def report_job_error(self, job_info: Any, msg: str | None = None, **details: Any) -> None:
        """Report a failed job, and let a final failure use up the job's attempts."""
        job = job_info.job
        if _is_final(job.log, details.get("aux_logs", [])):
            job.attempt = job.restart_times + 1
        super().report_job_error(job_info, msg, **details)

    async def check_active_jobs(self, active_jobs: list[Any]) -> AsyncGenerator[Any, None]:
        """Tell of jobs that cannot start, then look which ones have ended."""
        self._tell_of_waiting(active_jobs)
        async for job in super().check_active_jobs(active_jobs):
            yield job

    def _longest(self, job: Any) -> float:
        """The longest time, in minutes, among the partitions that are suitable but for time."""
        wanted, job.resources.runtime = job.resources.get("runtime"), 0
        suitable = [p for p in self._partitions or [] if p.score_job_fit(job) is not None]
        job.resources.runtime = wanted
        return max((p.limits.max_runtime for p in suitable), default=float("inf"))

    def _cut(self, job: Any, limit: float, where: str) -> None:
        wanted = job.resources.get("runtime")
        if wanted and wanted > limit:
            self.logger.info(
                f"Job {job.jobid} asks for {wanted} minutes and gets {limit:.0f}, the limit of "
                f"{where}; what is not done by then goes on at the next attempt."
            )
            job.resources.runtime = int(limit)

    def _tell_of_waiting(self, active_jobs: list[Any]) -> None:
        names = {info.external_jobid: info.job.name for info in active_jobs}
        for number, reason in _waiting(list(names)):
            if LASTING.fullmatch(reason) and (number, reason) not in self._told:
                self._told.add((number, reason))
                self.logger.warning(
                    f"SLURM job {number} (rule {names[number]}) cannot start: {reason}. Correct "
                    f"what it asks for (scontrol show job {number}), or cancel it: scancel {number}"
                )


def _time_limit(partition: str) -> float:
    """The longest time, in minutes, that SLURM gives a job in a partition."""
    shown = _ask("scontrol", "--oneliner", "show", "partition", partition)
    limit = re.search(r"\bMaxTime=(\S+)", shown)
    if limit is None or limit[1] == "UNLIMITED":
        return float("inf")
    return parse_time_to_minutes(limit[1])


def _waiting(jobs: list[str]) -> list[tuple[str, str]]:
    """The number of each job that waits, and SLURM's reason."""
    if not jobs:
        return []
    ours = f"--jobs={','.join(jobs)}"
    shown = _ask("squeue", "--noheader", "--states=PENDING", ours, "--format=%i %r")
    return [(line.split()[0], line.split()[1]) for line in shown.splitlines()]


def _ask(*command: str) -> str:
    """What one of SLURM's commands prints: nothing where it fails, as with a busy controller."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _is_final(rule_logs: list[str], slurm_logs: list[str | None]) -> bool:
    """Whether a job wrote the sentence of a `VitrailError` (torchrun hides the exit status).

    A job that never started has no log of SLURM's, and the log of its rule is an older job's.
    """
    started = [Path(log) for log in slurm_logs if log and Path(log).is_file()]
    files = [*started, *(Path(log) for log in rule_logs if Path(log).is_file())] if started else []
    return any(
        line.startswith("vitrail: ")
        for file in files
        for line in file.read_text(errors="replace").splitlines()
    )
