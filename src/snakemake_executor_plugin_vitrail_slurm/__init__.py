"""``--executor vitrail-slurm``: Snakemake's SLURM executor for jobs that resume from checkpoints.

Snakemake's own executor, snakemake-executor-plugin-slurm 2.8, chooses the partition (by the file of
``--slurm-partition-config``), excludes nodes (``--exclude``) and lets SLURM requeue preempted jobs
(``--requeue``). This executor adds what is missing there; #number is an issue of the repository
snakemake/snakemake-executor-plugin-slurm:

- Submission. A job that SLURM refuses only for now (because of a submit limit, or of a controller
  that does not answer) waits behind those that were refused before it, and uses up no attempt
  (#313, #320). Its time is cut to the limit of its partition, and the next attempt resumes where it
  stopped (#456). SLURM sends each job a signal before its time is up (#242). Only jobs with GPUs
  ask for a type of GPU.
- Waiting. If a job waits in the queue for a reason that will not pass, the user is told. If a job
  has left the queue and no query has seen its end, it is judged by its output (#33). After a failed
  query no job is forgotten (#207).
- Failure. The innermost command of a job writes the kind of its failure
  (`replication.cluster.failures`). An error of the user is final. A job that met a faulty node is
  submitted again without that node (#15: otherwise only nodes that SLURM itself has given up are
  excluded; #485: even strings that are not node names are). A job whose run another job trains is
  submitted again later. Both use up no attempt. After running out of memory, a job asks for twice
  as much (#65).
- End. When Snakemake was told to end, jobs that are not in the queue are given up, and Ctrl-C takes
  effect within seconds instead of at the next query of the queue.
"""

import asyncio
import re
import shlex
import shutil
import subprocess
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from os import environ, stat
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from snakemake_executor_plugin_slurm import Executor as SlurmExecutor
from snakemake_executor_plugin_slurm import (
    ExecutorSettings,
    SubmittedJobInfo,
    WorkflowError,
    common_settings,
)
from snakemake_executor_plugin_slurm.partitions import (
    PartitionLimits,
    extract_partition_limits,
    parse_gpu_requirements,
    parse_scontrol_partition_output,
)

from replication.cluster.failures import BAD_MACHINE, FOLDER, RUN_LOCKED, USER_ERROR, Failure
from replication.cluster.partition_file import PARTITIONS, most, place_of, read_partitions
from vitrail.errors import VitrailError

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

# SLURM's reasons for pending (squeue(1), "JOB REASON CODES") that neither time nor the end of other
# jobs removes. `GIVEN_UP` are those with which SLURM has given up starting the job.
GIVEN_UP = "JobHoldMaxRequeue|launch failed requeued held"
TOO_MUCH = "(Assoc|QOS)M(ax|in).*(PerJob|Satisfied).*"  # a limit on what one job may ask for
LASTING = re.compile(
    "PartitionTimeLimit|PartitionNodeLimit|BadConstraints|AccountNotAllowed|QOSNotAllowed|"
    "InvalidAccount|InvalidQOS|JobHeldUser|JobHeldAdmin|DependencyNeverSatisfied|MaxMemPerLimit|"
    f"{TOO_MUCH}|{GIVEN_UP}"
)
# Errors of sbatch that remain if the job is submitted again (slurm_errno.c).
FINAL_REFUSAL = re.compile(
    "[Ii]nvalid (?!auth|job credential)|is invalid|specification invalid|[Uu]nrecognized option|"
    "Requested node configuration is not available|can ?not be satisfied|than permitted|"
    f"not permitted to use|[Pp]ermission denied|not found|too long|{TOO_MUCH}"
)
# Errors of sbatch that end when other jobs or a disturbance end. All others, such as messages of a
# site's own rules, are in neither list.
PASSING_REFUSAL = re.compile(
    r"(Assoc|QOS)\w*Limit|submit limit|Unable to contact|[Tt]imed out|[Tt]emporarily|[Cc]onnection|"
    r"[Cc]ommunication|Message (send|receive)|Unexpected message|Zero Bytes|standby mode|"
    r"[Ii]nvalid (auth|job credential)|[Aa]uthentication|not responding|\(inactive or drain\)|"
    r"\(down, drained or reserved\)|No valid SLURM job ID|\[Errno (11|12)\]"
)
NODE_LIMITS = "max_gpu, max_threads and max_mem_mb"
# What a refusal or a reason for pending is about, and the resource of a job that says so, or the
# limits of a partition that have let the job through.
ABOUT = {
    "invalid ?account|account ?not ?(allowed|permitted)|given account|specify an account": (
        "slurm_account"
    ),
    "partition": "slurm_partition",
    "invalid ?qos|qos ?not ?(allowed|permitted)": "qos",
    "invalid feature|bad ?constraints": "constraint",
    "generic resource": "gpu_model",
    "node configuration|can ?not be satisfied": NODE_LIMITS,
}
# The base executor's message for an exception that is no refusal by SLURM.
EXCEPTION = re.compile(r"Job submission failed with exception: (?!SLURM job submission failed\.)")
STATUS = re.compile(r"SLURM status is: '(\w+)'")  # in its message for a failed job
# SLURM's message in a job's log. It is needed if the job's state was not seen, or if SLURM ended
# only a step of the job: then the job's state is that of the command which started the step.
OUT_OF_MEMORY = re.compile(
    r"^slurmstepd(-\S+)?: error: .*(oom.kill event|memory limit)", re.MULTILINE
)

QUERIES = 2  # queries without a job, in a row, after which the job is judged by its output
NODES = 5  # faulty nodes that a job may meet before its failures count as attempts
NODE = re.compile(r"[\w.,\[\]-]+")  # the name of a node, or a list of names in SLURM's notation
LONGEST_WAIT = 600  # seconds between two submissions of a job that waits
# Seconds of refusals, with no job in the queue, after which they count as final: for refusals that
# usually pass, and for unknown ones.
PATIENCE = 48 * 3600
PATIENCE_WITH_UNKNOWN = 600
SIGNAL = "USR1@120"  # the signal that SLURM sends a job, and how many seconds before its end
SECONDS_TO_ANSWER = 60


class InQueue(NamedTuple):
    """The answer of `squeue` for a job."""

    state: str
    node: str
    reason: str


@dataclass
class JobHistory:
    """The history of a job.

    `output` is the time of each output file before the last submission. `unlisted` is the number of
    queries since the last one that listed the job. `memory` is the memory in MB that it asks for
    from now on; 0 if it asks for what its rule says. `put_off` is how often another job held its
    folder, and `sick` how many faulty nodes it has met.
    """

    output: dict[str, int | None] = field(default_factory=dict)
    unlisted: int = 0
    memory: int = 0
    put_off: int = 0
    sick: int = 0


class Executor(SlurmExecutor):
    """Submit jobs, follow each one to its end, and give up those that cannot be done."""

    _failed_nodes: set[str]  # nodes that the base executor excludes

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """Start without jobs; the base class starts the thread that checks jobs."""
        self._courses: dict[Any, JobHistory] = defaultdict(JobHistory)
        self._refused: deque[Any] = deque()  # jobs that wait to be submitted
        self._refusals = 0  # number of refusals in a row
        self._partition_file: Any = None
        self._idle_since: float | None = None  # since when jobs are refused and none is queued
        self._put_off: list[tuple[float, Any]] = []  # times of submission, with their jobs
        self._submission: Future[None] | None = None  # the last submission of jobs that waited
        self._submitted: set[str] = set()
        self._settled: set[str | None] = set()  # jobs that ended in the current check
        self._listed: dict[str, InQueue] = {}
        self._told: set[tuple[str, str]] = set()
        super().__init__(*arguments, **named)

    def __post_init__(self, test_mode: bool = False) -> None:
        """Submit jobs in one thread: if one is refused, those behind it need not be tried.

        Raises:
            WorkflowError: there is no `sbatch`, or the partition file has a mistake. Both are found
                here, before local jobs download data.
        """
        if shutil.which("sbatch") is None:
            raise WorkflowError(
                "SLURM's sbatch is not on the PATH: run this where jobs are submitted (mostly a "
                "login node), or leave out --profile slurm to compute on this machine"
            )
        given = self.workflow.executor_settings.partition_config
        file = given or environ.get("SNAKEMAKE_SLURM_PARTITIONS")
        try:
            partitions = read_partitions(Path(file)) if file else None
        except VitrailError as error:
            raise WorkflowError(str(error)) from None
        super().__post_init__(test_mode)
        if partitions:
            self._partitions, self._partition_file = partitions, file
        self._job_submission_executor = ThreadPoolExecutor(max_workers=1)
        self._failures = self.slurm_logdir.resolve() / "failures"
        environ[FOLDER] = str(self._failures)  # sbatch passes the environment on to each job
        self._excluded = set(self._failed_nodes)  # excluded by the settings, not after failures

    # Submission

    def get_account_arg(self, job: Any) -> Iterator[str]:
        """Yield the option for the job's account.

        Without SLURM's accounting programs, only `sbatch` checks the account.
        """
        try:
            yield from super().get_account_arg(job)
        except FileNotFoundError:
            account = job.resources.get("slurm_account")
            if account:
                yield f" -A {shlex.quote(str(account))}"
            else:
                self._fallback_account_arg = ""  # so that it is not guessed again
                yield ""

    def get_partition_arg(self, job: Any) -> str:
        """Fit a job's resources to the limits; return the options for partition and signal.

        A signal in `slurm_extra` comes later in the call of `sbatch`, and so overrides this one.
        """
        _name_gpus(job)
        if memory := self._courses[job].memory:
            most = self._most(job, "mem_mb")
            _ask_for(job, "mem_mb", max(job.resources.mem_mb, int(min(memory, most))))
        where = f"the partitions in {self._partition_file} that suit it"
        self._cut(job, self._most(job, "runtime"), where)
        argument = super().get_partition_arg(job)
        if argument:
            partition = shlex.split(argument)[-1]
            self._cut(job, _time_limit(partition), f"partition {partition}")
        return f"{argument} --signal={SIGNAL}"

    def run_job(self, job: Any) -> None:
        """Submit a job, after those that SLURM has refused."""
        self._refused.append(job)
        if len(self._refused) == 1:
            self._submit_waiting()

    def _submit_waiting(self) -> None:
        """Submit waiting jobs until SLURM refuses one; if Snakemake is ending, give them up."""
        if not self._refused:
            return
        if self._refusals and not self._cancel_strays() and not self._is_ending():
            return
        while self._refused:
            if self._is_ending():
                job = self._refused.popleft()
                _give_up(job)
                said = "Snakemake was told to end, and this job was not in SLURM's queue. "
                super()._report_job_error_threadsafe(SubmittedJobInfo(job), said)
                continue
            job, refusals = self._refused.popleft(), self._refusals
            if refusals and self._is_made(job):
                self.report_job_success(SubmittedJobInfo(job))
                continue
            self._courses[job] = replace(self._courses[job], output=_times(job.output), unlisted=0)
            # SLURM answers "None assigned" if it does not know on which node a job was.
            self._failed_nodes = {node for node in self._failed_nodes if NODE.fullmatch(node)}
            super().run_job(job)
            if self._refusals > refusals:
                self._refused.appendleft(job)
                break

    def _cancel_strays(self) -> bool:
        """Cancel jobs that SLURM accepted although it reported a refusal.

        Return False if SLURM does not answer. Only the first of the waiting jobs can be such a job.
        """
        listed = _list(self.run_uuid)
        for number in {*(listed or {})} - self._submitted:
            _ask("scancel", number)
        return listed is not None

    def _report_job_submission_threadsafe(self, job_info: Any) -> None:
        self._refusals, self._idle_since = 0, None
        self._submitted.add(job_info.external_jobid)
        super()._report_job_submission_threadsafe(job_info)

    def _report_job_error_threadsafe(self, job_info: Any, msg: str) -> None:
        """Report a job that could not be submitted, unless a later submission may succeed."""
        said, call, script = msg.partition("    sbatch call:")
        said = said.strip()
        places = self._places(said, job_info.job)
        remedy = f"Set or correct {places}." if places else ""
        if not self._may_pass(job_info.job, said):
            _give_up(job_info.job)
            told = "\n".join(filter(None, [said, remedy, call + script]))
            super()._report_job_error_threadsafe(job_info, told)
            return
        self._refusals += 1
        if ("", said) not in self._told:
            self._told.add(("", said))
            if PASSING_REFUSAL.search(said):
                known = "SLURM takes no more jobs for now."
                then = "Those left are submitted as others end."
            else:
                known = f"SLURM refuses job {job_info.job.jobid}."
                again = (
                    "It is submitted again, and fails if it is still refused after "
                    f"{PATIENCE_WITH_UNKNOWN // 60} minutes with no other job in the queue."
                )
                then = " ".join(filter(None, [remedy, again]))
            self.logger.warning(f"{known} {said} {then}")

    def _may_pass(self, job: Any, said: str) -> bool:
        """Tell whether a refusal may pass.

        If SLURM cannot start the job without the nodes that have failed, they are allowed again.
        """
        passes = bool(PASSING_REFUSAL.search(said))
        patience = PATIENCE if passes else PATIENCE_WITH_UNKNOWN
        if self._idle_since is not None and monotonic() - self._idle_since > patience:
            return False
        if EXCEPTION.match(said):
            return passes
        sick = self._failed_nodes - self._excluded
        if FINAL_REFUSAL.search(said) and sick:
            self._failed_nodes -= sick
            self.logger.warning(
                f"SLURM cannot start job {job.jobid} without {', '.join(sorted(sick))}, where jobs "
                "have failed: these nodes may be used again."
            )
            return True
        return not FINAL_REFUSAL.search(said)

    def _places(self, said: str, job: Any) -> str:
        """Return the fields to correct, with their files, for what SLURM said; "" if unknown."""
        named = [name for about, name in ABOUT.items() if re.search(about, said, re.IGNORECASE)]
        partitions = f"the partitions in {self._partition_file or PARTITIONS}"
        places = {
            NODE_LIMITS: f"{NODE_LIMITS} of {partitions}, or the resources of the job in its scale "
            "file (`vitrail doctor TARGET --scale SCALE` says which)",
            "slurm_partition": "" if job.resources.get("slurm_partition") else partitions,
        }
        return " or ".join(places.get(name) or place_of(name) for name in named)

    def _most(self, job: Any, resource: str) -> float:
        """Return the largest limit of a resource among partitions that suit all else of a job."""
        wanted = job.resources.get(resource)
        _ask_for(job, resource, 0)
        suitable = [p for p in self._partitions or [] if p.score_job_fit(job) is not None]
        _ask_for(job, resource, wanted)
        return most(suitable, resource, parse_gpu_requirements(job)[0])

    def _cut(self, job: Any, limit: float, where: str) -> None:
        wanted = job.resources.get("runtime")
        if wanted and wanted > limit:
            self.logger.info(
                f"Job {job.jobid} asks for {wanted} minutes and gets {limit:.0f}, the limit of "
                f"{where}; what is not done by then goes on at the next attempt."
            )
            _ask_for(job, "runtime", int(limit))

    # Waiting

    async def check_active_jobs(self, active_jobs: list[Any]) -> AsyncGenerator[Any, None]:
        """Find the jobs that ended, warn of those that cannot start, submit those that wait."""
        listed = _list(self.run_uuid) if active_jobs else {}
        self._listed = listed or {}
        self._see_to_waiting(active_jobs)
        self._settled.clear()
        async for _ in super().check_active_jobs(active_jobs):
            pass  # what it yields is ignored: it omits jobs whose state it could not query
        for info in active_jobs:
            if info.external_jobid in self._settled:
                continue
            course = self._courses[info.job]
            if listed is not None:
                course.unlisted = 0 if info.external_jobid in listed else course.unlisted + 1
            if course.unlisted >= QUERIES and _is_gone(info.external_jobid):
                self._judge(info)
            else:
                yield info
        self._submit_if_due()
        if not active_jobs:
            if self._refused and self._idle_since is None:
                self._idle_since = monotonic()
            wait = self.workflow.executor_settings.init_seconds_before_status_checks
            longer = min(wait * 2 ** min(self._refusals, 9), LONGEST_WAIT)
            self.next_seconds_between_status_checks = longer

    def _submit_if_due(self) -> None:
        """Let the submitting thread take the waiting jobs, unless it is at work already."""
        now = float("inf") if self._is_ending() else monotonic()
        self._refused.extend(job for time, job in self._put_off if time <= now)
        self._put_off = [(time, job) for time, job in self._put_off if time > now]
        if self._refused and (self._submission is None or self._submission.done()):
            self._submission = self._job_submission_executor.submit(self._submit_waiting)

    async def sleep(self) -> None:
        """Wait until the next query of the queue, or only a second if `is_called`."""
        due = monotonic() + self.next_seconds_between_status_checks
        await asyncio.sleep(1)
        while monotonic() < due and not self.is_called():
            await asyncio.sleep(1)

    def is_called(self) -> bool:
        """Tell whether to query at once: after Ctrl-C, or to give up jobs that wait."""
        return not self.wait or (self._is_ending() and bool(self._refused or self._put_off))

    def _is_ending(self) -> bool:
        """Tell whether Snakemake starts no more jobs: after SIGTERM, or a final failure.

        A failure is final without --keep-going. Snakemake does not tell its executors, and waits
        for all jobs that it has handed over.
        """
        scheduler = self.workflow.scheduler
        failed = getattr(scheduler, "_errors", False) and not scheduler.keepgoing
        return bool(failed or getattr(scheduler, "_user_kill", None))

    def cancel(self) -> None:
        """Cancel all jobs; those that wait are never submitted."""
        self._refused.clear()
        self._put_off.clear()
        # Wait for a submission in progress: its job is then cancelled, too, or removed below.
        self._job_submission_executor.shutdown(cancel_futures=True)
        self._refused.clear()
        super().cancel()

    def _see_to_waiting(self, active_jobs: list[Any]) -> None:
        """Warn of jobs that cannot start; cancel those that SLURM holds, to submit them again."""
        jobs = {info.external_jobid: info.job for info in active_jobs}
        for number, (state, _, reason) in self._listed.items():
            if state != "PENDING" or number not in jobs or not LASTING.fullmatch(reason):
                continue
            given_up = re.fullmatch(GIVEN_UP, reason)
            if given_up:
                _ask("scancel", number)
            if (number, reason) not in self._told:
                self._told.add((number, reason))
                remedy = (
                    "It is cancelled and submitted again"
                    if given_up
                    else f"Correct what it asks for (scontrol show job {number}), or cancel it: "
                    f"scancel {number}"
                )
                places = self._places(reason, jobs[number])
                later = f". For later jobs, set or correct {places}" if places else ""
                self.logger.warning(
                    f"SLURM job {number} (rule {jobs[number].name}) cannot start: {reason}. "
                    f"{remedy}{later}"
                )

    def _judge(self, info: Any) -> None:
        """Report a job that SLURM has forgotten: as a success if all its output is new."""
        if self._is_made(info.job):
            self.logger.info(f"SLURM job {info.external_jobid} has ended: its output is there.")
            self.report_job_success(info)
        else:
            log = info.aux.get("slurm_logfile")
            self.report_job_error(
                info,
                msg=f"SLURM job '{info.external_jobid}' is no longer in the queue, and its output "
                "is missing. ",
                aux_logs=[log and str(log)],
            )

    def _is_made(self, job: Any) -> bool:
        """Tell whether all output of a job was written after its last submission."""
        before, now = self._courses[job].output, _times(job.output)
        return bool(before) and all(time not in (None, before[path]) for path, time in now.items())

    # Failure

    def report_job_success(self, job_info: Any) -> None:
        """Report a job that has made its output."""
        self._settled.add(job_info.external_jobid)
        super().report_job_success(job_info)

    def report_job_error(self, job_info: Any, msg: str | None = None, **details: Any) -> None:
        """Submit a failed job again, or report its failure, depending on the kind of failure."""
        job, number = job_info.job, job_info.external_jobid
        self._settled.add(number)
        course = self._courses[job]
        said = STATUS.search(msg or "")
        state = said[1] if said else ""
        failure = self._failure(job_info, state) if number else None
        if failure and failure.status == RUN_LOCKED:
            self.logger.warning(
                f"Job {job.jobid} waits: another job works in its folder. It is submitted again."
            )
            course.put_off += 1
            self._submit_later(job, course.put_off)
            return
        if failure and failure.status == BAD_MACHINE and course.sick < NODES:
            self.logger.warning(
                f"Job {job.jobid} could not work on {failure.machine or 'its node'}, for a reason "
                f"that lies there (SLURM job {number}). It is submitted again without that node."
            )
            self._failed_nodes |= {failure.machine} - {""}
            self._submit_later(job, course.sick)
            course.sick += 1
            return
        if failure and failure.status == USER_ERROR:
            _give_up(job)
        untold = number and state in ("", "FAILED")
        if state == "OUT_OF_MEMORY" or (untold and _says_out_of_memory(job_info)):
            course.memory = 2 * (job.resources.get("mem_mb") or 0)
        super().report_job_error(job_info, msg, **details)

    def _failure(self, info: Any, state: str) -> Failure | None:
        """Return the failure of a job; None if its kind is not known.

        A job that could not even open its SLURM log is taken to have met a faulty node.
        """
        number, log = info.external_jobid, info.aux.get("slurm_logfile")
        if failure := Failure.read(self._failures, number):
            return failure
        mute = state == "FAILED" and log and not log.exists()
        if mute or state in {"BOOT_FAIL", "NODE_FAIL"}:
            node = self._listed[number].node if number in self._listed else ""
            return Failure(BAD_MACHINE, node if NODE.fullmatch(node) else "")
        return None

    def _submit_later(self, job: Any, times: int) -> None:
        """Submit a job again, after 0, 30, 90, 210, ... seconds for `times` = 0, 1, 2, 3, ..."""
        self._put_off.append((monotonic() + min(30 * (2**times - 1), LONGEST_WAIT), job))


def _ask_for(job: Any, resource: str, value: Any) -> None:
    """Change what a job asks for; a group job returns only a copy of its resources."""
    resources = job.resources
    if job.is_group():
        job._resources[resource] = value
    else:
        setattr(resources, resource, value)


def _name_gpus(job: Any) -> None:
    """Ask for the profile's `gpu_model` once, and only in a job that asks for GPUs."""
    model, gres = job.resources.get("gpu_model"), job.resources.get("gres")
    if model and not job.resources.get("gpu"):
        _ask_for(job, "gpu_model", None)
        if gres and (plain := re.fullmatch(r"gpu:(\d+)", gres)):
            _ask_for(job, "gres", f"gpu:{model}:{plain[1]}")


def _says_out_of_memory(info: Any) -> bool:
    """Tell whether SLURM wrote to a job's log that it ran out of memory."""
    log = info.aux.get("slurm_logfile")
    try:
        return bool(log and OUT_OF_MEMORY.search(log.read_text(errors="replace")))
    except OSError:
        return False


def _give_up(job: Any) -> None:
    """Use up all attempts of a job."""
    job.attempt = job.restart_times + 1


def _times(paths: list[str]) -> dict[str, int | None]:
    """Return when each file was written, in ns by its disk's clock; None for a missing file."""
    return {str(path): _time(str(path)) for path in paths}


def _time(path: str) -> int | None:
    try:
        return stat(path).st_mtime_ns
    except OSError:
        return None


def _time_limit(partition: str) -> float:
    """Return the longest time, in minutes, that SLURM gives a job in a partition."""
    shown = parse_scontrol_partition_output(_ask("scontrol", "show", "partition", partition).stdout)
    return PartitionLimits(**extract_partition_limits(shown.get(partition, {}))).max_runtime


def _list(name: str) -> dict[str, InQueue] | None:
    """Return the jobs of this run that SLURM lists, by number; None if it does not answer."""
    shown = _ask(
        *("squeue", "--noheader", "--states=all", f"--name={name}", "--format=%i|%T|%N|%r")
    )
    if shown.returncode:
        return None
    lines = [line.split("|", 3) for line in shown.stdout.splitlines() if line.count("|") >= 3]
    return {
        number.strip(): InQueue(state, node, reason.replace("_", " "))
        for number, state, node, reason in lines
    }


def _is_gone(number: str) -> bool:
    """Tell whether SLURM says that it does not know a job; False if it does not answer."""
    shown = _ask("scontrol", "show", "job", number)
    return shown.returncode != 0 and "Invalid job id" in shown.stderr


def _ask(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a SLURM command; return a failed result if it cannot run, or takes too long."""
    try:
        return subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=SECONDS_TO_ANSWER,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))
