"""``--executor vitrail-slurm``: Snakemake's SLURM executor for jobs that resume from checkpoints.

Snakemake's own executor, snakemake-executor-plugin-slurm 2.8, chooses the partition (by the file of
``--slurm-partition-config``), excludes nodes (``--exclude``) and lets SLURM queue preempted jobs
anew (``--requeue``). This one adds what that one lacks; #number is an issue of its repository,
snakemake/snakemake-executor-plugin-slurm:

- Submission. A job that SLURM refuses for now (a submit limit, a controller that does not answer)
  waits, behind those refused before it, and uses up no attempt (#313, #320). Its time is cut to the
  limit of its partition, and the next attempt goes on where it stopped (#456). SLURM sends each job
  a signal before its time is up (#242). GPUs of a type are asked for by jobs with GPUs only.
- Waiting. A job that waits in the queue for a reason that cannot pass is told to the user. One that
  has left the queue unseen is judged by its output (#33). A query that fails forgets no job (#207).
- Failure. The innermost command of a job says of what kind its failure was
  (`replication.cluster.failures`). An error of the user is final. A job that met a sick node is
  submitted again without that node (#15: only nodes that SLURM itself has given up are excluded;
  #485: so are names that are none). One whose run another job trains is submitted again later. Both
  use up no attempt. After an end out of memory a job asks for twice as much (#65).
- End. When Snakemake was told to end, what is not in the queue is given up, and Ctrl-C is answered
  within seconds, not at the next look at the queue.
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
from snakemake_executor_plugin_slurm import ExecutorSettings as SlurmSettings
from snakemake_executor_plugin_slurm import SubmittedJobInfo, WorkflowError, common_settings
from snakemake_executor_plugin_slurm.partitions import (
    PartitionLimits,
    extract_partition_limits,
    parse_gpu_requirements,
    parse_scontrol_partition_output,
)

from replication.cluster.failures import BAD_MACHINE, FOLDER, RUN_LOCKED, USER_ERROR, Failure
from replication.cluster.partition_file import most, read_partitions
from vitrail.errors import VitrailError

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

# Of SLURM's reasons for pending (squeue(1), "JOB REASON CODES"), those that neither time nor the
# end of other jobs removes, and of these the ones by which SLURM gave up starting the job.
GIVEN_UP = "JobHoldMaxRequeue|launch failed requeued held"
TOO_MUCH = "(Assoc|QOS)M(ax|in).*(PerJob|Satisfied).*"  # of what one job may ask for
LASTING = re.compile(
    "PartitionTimeLimit|PartitionNodeLimit|BadConstraints|AccountNotAllowed|QOSNotAllowed|"
    "InvalidAccount|InvalidQOS|JobHeldUser|JobHeldAdmin|DependencyNeverSatisfied|MaxMemPerLimit|"
    f"{TOO_MUCH}|{GIVEN_UP}"
)
# Of sbatch's complaints, those that submitting again does not change (slurm_errno.c).
FINAL_REFUSAL = re.compile(
    "[Ii]nvalid (?!auth|job credential)|is invalid|specification invalid|[Uu]nrecognized option|"
    "Requested node configuration is not available|can ?not be satisfied|than permitted|"
    f"not permitted to use|[Pp]ermission denied|not found|too long|{TOO_MUCH}"
)
# And those that the end of other jobs or of a disturbance changes. All others, such as the words of
# a site's own rules, are in neither list.
PASSING_REFUSAL = re.compile(
    r"(Assoc|QOS)\w*Limit|submit limit|Unable to contact|[Tt]imed out|[Tt]emporarily|[Cc]onnection|"
    r"[Cc]ommunication|Message (send|receive)|Unexpected message|Zero Bytes|standby mode|"
    r"[Ii]nvalid (auth|job credential)|[Aa]uthentication|not responding|\(inactive or drain\)|"
    r"\(down, drained or reserved\)|No valid SLURM job ID|\[Errno (11|12)\]"
)
# What the executor that is extended says of an exception that is no refusal by SLURM.
EXCEPTION = re.compile(r"Job submission failed with exception: (?!SLURM job submission failed\.)")
STATUS = re.compile(r"SLURM status is: '(\w+)'")  # in what it says of a failed job
# What SLURM says in the log of a job, for one whose state nobody saw, and for one of which it ended
# only a step: the state of that job is that of the command which has started the step.
OUT_OF_MEMORY = re.compile(
    r"^slurmstepd(-\S+)?: error: .*(oom.kill event|memory limit)", re.MULTILINE
)

QUERIES = 2  # that list a job no more before it is judged by its output
NODES = 5  # sick ones that a job may meet before its failures count as attempts
NODE = re.compile(r"[\w.,\[\]-]+")  # a name, or a list of names as SLURM writes them
LONGEST_WAIT = 600  # seconds between two submissions of a job that waits
# Seconds of refusals, with no job in the queue, before they count as final: of those that pass, and
# of those of which nobody knows.
PATIENCE = 48 * 3600
PATIENCE_WITH_UNKNOWN = 600
SIGNAL = "USR1@120"  # what SLURM sends a job, and how many seconds before its time is up
SECONDS_TO_ANSWER = 60


@dataclass
class ExecutorSettings(SlurmSettings):
    """The settings of Snakemake's executor for SLURM, and one of this one."""

    # Annotations must be types here, not their names: Snakemake makes options of them.
    environment: str = field(
        default="",
        metadata={
            "help": "Variables of the environment of each job, as NAME=value NAME=value: for "
            "instance by which network the nodes of a training meet (NCCL_SOCKET_IFNAME=ib0)."
        },
    )

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            WorkflowError: `environment` has a word that is no NAME=value.
        """
        super().__post_init__()
        for word in shlex.split(self.environment):
            if not re.match(r"[A-Za-z_]\w*=", word):
                raise WorkflowError(
                    f"vitrail-slurm-environment has '{word}', which is no NAME=value: correct it "
                    "in the profile"
                )


class InQueue(NamedTuple):
    """What `squeue` says of a job."""

    state: str
    node: str
    reason: str


@dataclass
class JobHistory:
    """What became of a job so far.

    `output` says when its output was written before it was submitted last, `unlisted` how many
    queries have passed since one that listed it, `memory` how many MB it asks for from now on,
    `put_off` how often its folder was held, and `sick` how many sick nodes it has met.
    """

    output: dict[str, int | None] = field(default_factory=dict)
    unlisted: int = 0
    memory: int = 0
    put_off: int = 0
    sick: int = 0


class Executor(SlurmExecutor):
    """Submits jobs, sees to it that each ends, and gives up on those that cannot be done."""

    _failed_nodes: set[str]  # nodes that the executor that is extended excludes

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """Begin with no job; the thread that checks jobs begins in here, too."""
        self._courses: dict[Any, JobHistory] = defaultdict(JobHistory)
        self._refused: deque[Any] = deque()  # jobs that SLURM takes later
        self._refusals = 0  # in a row
        self._partition_file: Any = None
        self._idle_since: float | None = None  # when there was no job in the queue, and a refusal
        self._put_off: list[tuple[float, Any]] = []  # jobs with the time when they are submitted
        self._submission: Future[None] | None = None  # of jobs that waited, the last one
        self._submitted: set[str] = set()
        self._settled: set[str | None] = set()  # jobs that ended in the present check
        self._listed: dict[str, InQueue] = {}
        self._told: set[tuple[str, str]] = set()
        super().__init__(*arguments, **named)

    def __post_init__(self, test_mode: bool = False) -> None:
        """Submit in one thread: one refusal speaks for those behind it.

        Raises:
            WorkflowError: there is no `sbatch`, or the partition file has a mistake; here it is
                said before local jobs download data.
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
        self._excluded = set(self._failed_nodes)  # by the settings, not because jobs failed there

    # Submission

    def get_job_exec_prefix(self, job: Any) -> str:
        """Give the job its environment, and the place to write of what kind its failure is."""
        given = shlex.split(self.workflow.executor_settings.environment)
        return shlex.join(["export", f"{FOLDER}={self._failures}", *given])

    def get_account_arg(self, job: Any) -> Iterator[str]:
        """Choose the job's account; without the programs of accounting `sbatch` alone judges it."""
        try:
            yield from super().get_account_arg(job)
        except FileNotFoundError:
            account = job.resources.get("slurm_account")
            if account:
                yield f" -A {shlex.quote(str(account))}"
            else:
                self._fallback_account_arg = ""  # not to be guessed again
                yield ""

    def get_partition_arg(self, job: Any) -> str:
        """Fit what the job asks for to what there is, choose its partition, and ask for a signal.

        What `slurm_extra` says of the signal comes later in the call of `sbatch`, and so goes over
        it.
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
        """Submit a job, behind those that SLURM has refused."""
        self._refused.append(job)
        if len(self._refused) == 1:
            self._submit_waiting()

    def _submit_waiting(self) -> None:
        """Submit the jobs that wait, until SLURM refuses one; if Snakemake ends, give them up."""
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
            # SLURM answers "None assigned" where it does not know on which node a job was.
            self._failed_nodes = {node for node in self._failed_nodes if NODE.fullmatch(node)}
            super().run_job(job)
            if self._refusals > refusals:
                self._refused.appendleft(job)
                break

    def _cancel_strays(self) -> bool:
        """Cancel what SLURM has taken although it said that it had not; False: it is silent.

        Only the first of the jobs that wait can have become such a stray.
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
        """Report a job that could not be submitted, if no later submission can succeed."""
        said = msg.partition("    sbatch call:")[0].strip()
        if not self._may_pass(job_info.job, said):
            _give_up(job_info.job)
            super()._report_job_error_threadsafe(job_info, msg)
            return
        self._refusals += 1
        if ("", said) not in self._told:
            self._told.add(("", said))
            if PASSING_REFUSAL.search(said):
                known = "SLURM takes no more jobs for now."
                then = "Those left are submitted as others end."
            else:
                known = f"SLURM refuses job {job_info.job.jobid}."
                then = (
                    "It is submitted again, and fails if it is still refused after "
                    f"{PATIENCE_WITH_UNKNOWN // 60} minutes with no other job in the queue."
                )
            self.logger.warning(f"{known} {said} {then}")

    def _may_pass(self, job: Any, said: str) -> bool:
        """Whether a refusal may pass: forgets which nodes are sick if there are too few others."""
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

    def _most(self, job: Any, resource: str) -> float:
        """The most of a resource that partitions give which are suitable for all else."""
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
        """Look which jobs have ended, tell of those that cannot start, submit those that wait."""
        listed = _list(self.run_uuid) if active_jobs else {}
        self._listed = listed or {}
        self._see_to_waiting(active_jobs)
        self._settled.clear()
        async for _ in super().check_active_jobs(active_jobs):
            pass  # it forgets those whose state it could not ask
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
        """Let the thread that submits jobs take those that wait, unless it does so already."""
        now = float("inf") if self._is_ending() else monotonic()
        self._refused.extend(job for time, job in self._put_off if time <= now)
        self._put_off = [(time, job) for time, job in self._put_off if time > now]
        if self._refused and (self._submission is None or self._submission.done()):
            self._submission = self._job_submission_executor.submit(self._submit_waiting)

    async def sleep(self) -> None:
        """Wait until the next look at the queue, or for a second where `is_called`."""
        due = monotonic() + self.next_seconds_between_status_checks
        await asyncio.sleep(1)
        while monotonic() < due and not self.is_called():
            await asyncio.sleep(1)

    def is_called(self) -> bool:
        """Whether the next look is due at once: after Ctrl-C, or to give up jobs that wait."""
        return not self.wait or (self._is_ending() and bool(self._refused or self._put_off))

    def _is_ending(self) -> bool:
        """Whether Snakemake starts no more jobs, after SIGTERM, or a failure without --keep-going.

        It tells no executor, and waits for all jobs that it has handed over.
        """
        scheduler = self.workflow.scheduler
        failed = getattr(scheduler, "_errors", False) and not scheduler.keepgoing
        return bool(failed or getattr(scheduler, "_user_kill", None))

    def cancel(self) -> None:
        """Cancel all jobs; those that wait are never submitted."""
        self._refused.clear()
        self._put_off.clear()
        # What is being submitted is waited for: it is cancelled, too, or waits no more.
        self._job_submission_executor.shutdown(cancel_futures=True)
        self._refused.clear()
        super().cancel()

    def _see_to_waiting(self, active_jobs: list[Any]) -> None:
        """Tell of jobs that cannot start; cancel those that SLURM holds, to submit them anew."""
        names = {info.external_jobid: info.job.name for info in active_jobs}
        for number, (state, _, reason) in self._listed.items():
            if state != "PENDING" or number not in names or not LASTING.fullmatch(reason):
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
                self.logger.warning(
                    f"SLURM job {number} (rule {names[number]}) cannot start: {reason}. {remedy}"
                )

    def _judge(self, info: Any) -> None:
        """Settle a job that SLURM has forgotten: by its output, if it is not that of before."""
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
        """Whether all output of a job was written since it was submitted last."""
        before, now = self._courses[job].output, _times(job.output)
        return bool(before) and all(time not in (None, before[path]) for path, time in now.items())

    # Failure

    def report_job_success(self, job_info: Any) -> None:
        """Report a job that has made its output."""
        self._settled.add(job_info.external_jobid)
        super().report_job_success(job_info)

    def report_job_error(self, job_info: Any, msg: str | None = None, **details: Any) -> None:
        """Submit a failed job again by the kind of its failure, or report it."""
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
                f"Job {job.jobid} could not work on {failure.node or 'its node'}, for a reason "
                f"that lies there (SLURM job {number}). It is submitted again without that node."
            )
            self._failed_nodes |= {failure.node} - {""}
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
        """Of what kind the failure of a job was, as far as one knows.

        A job that could not even open SLURM's log has met a sick node.
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
        """Submit a job again: after 0, 30, 90, 210 ... seconds if it is for the n-th time."""
        self._put_off.append((monotonic() + min(30 * (2**times - 1), LONGEST_WAIT), job))


def _ask_for(job: Any, resource: str, value: Any) -> None:
    """Change what a job asks for; a group gives a copy of what it asks for to whoever reads it."""
    resources = job.resources
    if job.is_group():
        job._resources[resource] = value
    else:
        setattr(resources, resource, value)


def _name_gpus(job: Any) -> None:
    """Ask for GPUs of the profile's `gpu_model` once, and only in a job that asks for GPUs."""
    model, gres = job.resources.get("gpu_model"), job.resources.get("gres")
    if model and not job.resources.get("gpu"):
        _ask_for(job, "gpu_model", None)
        if gres and (plain := re.fullmatch(r"gpu:(\d+)", gres)):
            _ask_for(job, "gres", f"gpu:{model}:{plain[1]}")


def _says_out_of_memory(info: Any) -> bool:
    """Whether SLURM wrote to a job's log that it ended out of memory."""
    log = info.aux.get("slurm_logfile")
    try:
        return bool(log and OUT_OF_MEMORY.search(log.read_text(errors="replace")))
    except OSError:
        return False


def _give_up(job: Any) -> None:
    """Use up a job's attempts."""
    job.attempt = job.restart_times + 1


def _times(paths: list[str]) -> dict[str, int | None]:
    """When each file was written, in nanoseconds by its disk's clock; None: it is not there."""
    return {str(path): _time(str(path)) for path in paths}


def _time(path: str) -> int | None:
    try:
        return stat(path).st_mtime_ns
    except OSError:
        return None


def _time_limit(partition: str) -> float:
    """The longest time, in minutes, that SLURM gives a job in a partition."""
    shown = parse_scontrol_partition_output(_ask("scontrol", "show", "partition", partition).stdout)
    return PartitionLimits(**extract_partition_limits(shown.get(partition, {}))).max_runtime


def _list(name: str) -> dict[str, InQueue] | None:
    """The jobs of this run that SLURM lists, by number; None where it does not answer."""
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
    """Whether SLURM says that it knows a job no more, which a silent controller does not."""
    shown = _ask("scontrol", "show", "job", number)
    return shown.returncode != 0 and "Invalid job id" in shown.stderr


def _ask(*command: str) -> subprocess.CompletedProcess[str]:
    """Run one of SLURM's commands; one that cannot run, or hangs, fails."""
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
