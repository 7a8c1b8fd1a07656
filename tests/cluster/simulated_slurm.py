"""A SLURM in this process: one state machine with a clock of its own, behind its usual commands.

`Slurm` holds nodes and jobs and the faults that a schedule gives it. `Slurm.call` answers `sbatch`,
`squeue`, `scontrol`, `scancel`, `sacct`, `sinfo` and `which` as the programs do; `installed` puts
it in the place of `subprocess` and of what is on the PATH. Nothing runs: what a job would do is
computed when it starts, and what it would write (output, log, note of a failure) is written when it
ends.
"""

import asyncio
import functools
import itertools
import os
import shlex
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from replication.cluster.failures import BAD_MACHINE, FOLDER, RUN_LOCKED, USER_ERROR, Failure

NEVER = float("inf")
MAX_REQUEUES = 5  # SLURM's own bound, max_batch_requeue
UNREACHABLE = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
REFUSED = "sbatch: error: Batch job submission failed: "
STATUSES = {"place": BAD_MACHINE, "held": RUN_LOCKED, "wrong": USER_ERROR}
OPTIONS = {
    "--job-name": "name",
    "--output": "log",
    "--comment": "comment",
    "-p": "partition",
    "-A": "account",
    "-t": "minutes",
    "--mem": "memory",
    "--exclude": "excluded",
    "--gpus": "gpus",
    "--gres": "gres",
    "--signal": "signal",
    "--wrap": "work",
    "--format": "format",
    "--name": "name",
    "--jobs": "numbers",
    "--states": "states",
}


@dataclass
class Target:
    """What one job makes, and what making it takes.

    `wrong`: it ends with an error of the user. `held_until`: somebody else works in its folder
    until then. `crashes`: so many times it ends with a status that says nothing. `done` are seconds
    that checkpoints have kept, of a training (`resumes`). `made` counts how often it was made,
    `together` the most jobs that have made it at a time.
    """

    name: str
    folder: Path
    seconds: float = 60
    memory: int = 1000
    gpus: int = 0
    wrong: bool = False
    resumes: bool = True
    held_until: float = 0
    crashes: int = 0
    done: float = 0
    made: int = 0
    together: int = 0
    endings: list[str] = field(default_factory=list)

    @property
    def output(self):
        """The file to make."""
        return self.folder / f"{self.name}.json"

    @property
    def log(self):
        """The log of its rule."""
        return self.folder / f"{self.name}.log"


@dataclass
class Node:
    """A machine with room for `slots` jobs. `sick` has (from, until, kind) in seconds.

    Kinds: "place" (the command finds no GPU, or a file cannot be read), "mute" (not even SLURM's
    log can be opened), "launch" (the job cannot be started there).
    """

    name: str
    slots: int = 4
    memory: int = 64000
    sick: list[tuple[float, float, str]] = field(default_factory=list)

    def ailment(self, now):
        """What it suffers from, or None."""
        return next((kind for start, end, kind in self.sick if start <= now < end), None)


@dataclass
class Job:
    """A job of the queue; `ends` is when it will end if nothing happens, and `ending` how."""

    number: int
    name: str
    comment: str
    log: str
    target: Target
    failures: Path
    minutes: float
    memory: int
    requeue: bool
    excluded: frozenset[str]
    signal: str | None
    call: str
    submitted: float
    state: str = "PENDING"
    reason: str = "Priority"
    node: Node | None = None
    last_node: str = ""
    started: float = 0
    ends: float = NEVER
    ending: str = ""
    ended: float | None = None
    requeues: int = 0

    @property
    def held(self):
        """Whether nothing but somebody's command lets it start."""
        return self.reason in {"JobHoldMaxRequeue", "launch failed requeued held", "JobHeldUser"}


class Slurm:
    """The cluster, with its faults.

    Args:
        targets: what its jobs may make.
        nodes: its machines.
        submit_limit: how many jobs may be in the queue.
        min_job_age: seconds until it forgets a job that has ended.
        silences: (from, until, kind) in seconds: the commands fail ("fail"), print nothing
            ("blank"), or fail although sbatch has taken the job ("deaf").
        events: (second, kind): the first busy node is lost ("lose"), or its jobs are preempted
            ("preempt").
        sacct: "absent", "disabled" or "works".
        partitions: those that there are.
        max_minutes: the limit of each.
        gpu_type: the type by which GPUs must be asked for; None: without one.
        ends_steps: whether a job that takes too much memory fails by itself, after its step was
            ended, where a scheduler watches the memory of steps.
        site_rule: what the site's own script says of each submission, which it refuses.
    """

    def __init__(
        self,
        targets,
        nodes,
        *,
        submit_limit=NEVER,
        min_job_age=300,
        silences=(),
        events=(),
        sacct="disabled",
        partitions=("cpu", "gpu"),
        max_minutes=NEVER,
        gpu_type=None,
        ends_steps=False,
        site_rule="",
    ):
        self.targets = {target.name: target for target in targets}
        self.nodes = nodes
        self.submit_limit, self.min_job_age = submit_limit, min_job_age
        self.silences, self.events = silences, sorted(events)
        self.sacct, self.partitions, self.max_minutes = sacct, partitions, max_minutes
        self.gpu_type, self.ends_steps, self.site_rule = gpu_type, ends_steps, site_rule
        self.now = 0.0
        self.jobs: dict[int, Job] = {}
        self._queue: dict[int, Job] = {}  # those that have not ended
        self._ended: list[Job] = []  # the others, in the order in which they did
        self.calls: list[str] = []  # the programs that were called
        self.refusals = 0

    # The clock

    def advance(self, seconds):
        """Let time pass, and do what falls due in it, in order."""
        until = self.now + seconds
        while True:
            self._schedule()
            job = min(self._in("RUNNING"), key=lambda job: job.ends, default=None)
            event = self.events[0][0] if self.events else NEVER
            due = min(job.ends if job else NEVER, event)
            if due > until:
                break
            self.now = max(self.now, due)
            if event <= (job.ends if job else NEVER):
                self._happen(self.events.pop(0)[1])
            else:
                self._end(job, job.ending)
        self.now = until

    def _in(self, *states):
        return [job for job in self._queue.values() if job.state in states]

    def _schedule(self):
        """Start pending jobs in order, each on the emptiest node, so that a sick one draws many."""
        busy = dict.fromkeys((node.name for node in self.nodes), 0)
        for job in self._in("RUNNING"):
            busy[job.node.name] += 1
        for job in self._in("PENDING"):
            if job.held:
                continue
            if job.minutes > self.max_minutes:
                job.reason = "PartitionTimeLimit"
                continue
            free = [
                node
                for node in self.nodes
                if busy[node.name] < node.slots
                and node.name not in job.excluded
                and node.memory >= job.memory
            ]
            job.reason = "Resources"
            if free:
                node = min(free, key=lambda node: busy[node.name] / node.slots)
                busy[node.name] += 1
                self._start(job, node)

    def _start(self, job, node):
        target, sick = job.target, node.ailment(self.now)
        job.state, job.reason, job.node, job.last_node = "RUNNING", "None", node, node.name
        job.started = self.now
        if sick in ("mute", "launch"):
            self._will(job, 1, sick)
            return
        others = [other for other in self._in("RUNNING") if other.target is target]
        Path(job.log).parent.mkdir(parents=True, exist_ok=True)
        Path(job.log).write_text(f"on {node.name}\n")
        target.output.unlink(missing_ok=True)  # as the snakemake within the job does
        limit, rest = job.minutes * 60, target.seconds - target.done
        if sick == "place":
            self._will(job, 2, "place")
        elif self.now < target.held_until or (target.resumes and len(others) > 1):
            self._will(job, 2, "held")
        elif target.wrong:
            self._will(job, 5, "wrong")
        elif target.crashes:
            target.crashes -= 1
            self._will(job, 5, "FAILED")
        elif target.memory > job.memory:
            self._will(job, min(rest / 2, limit), "OUT_OF_MEMORY")
        elif rest > limit:
            self._will(job, limit, "TIMEOUT")
        else:
            target.together = max(target.together, len(others))
            self._will(job, rest, "COMPLETED")

    def _will(self, job, seconds, ending):
        job.ends, job.ending = self.now + seconds, ending

    def _end(self, job, ending):
        """End a job as SLURM does; what its command leaves behind is written here."""
        target = job.target
        target.endings.append(ending)
        if ending == "launch":
            self._requeue(job, "launch failed requeued held")
            return
        if target.resumes and ending in ("TIMEOUT", "NODE_FAIL", "CANCELLED", "PREEMPTED"):
            target.done += min(self.now - job.started, target.seconds - target.done)
        if ending in STATUSES:
            target.log.write_text(f"vitrail: {ending}\n")  # the sentence that is for people
            Failure(STATUSES[ending], job.node.name).write(job.failures, str(job.number))
        if ending == "OUT_OF_MEMORY":
            said = "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0."
            if self.ends_steps:
                said = (
                    "slurmstepd-n1: error: StepId=1.0 exceeded memory limit (2 > 1), being killed"
                )
                ending = "FAILED"
            Path(job.log).write_text(f"{said}\n")
        if ending == "COMPLETED":
            target.output.write_text(f"by job {job.number}")
            target.made += 1
        if job.requeue and ending in ("NODE_FAIL", "PREEMPTED"):
            self._requeue(job, "BeginTime")
            return
        job.state = "FAILED" if ending in {*STATUSES, "mute"} else ending
        job.ended, job.node = self.now, None
        self._ended.append(self._queue.pop(job.number))
        job.ends = NEVER

    def _requeue(self, job, reason):
        job.requeues += 1
        job.state, job.node, job.ends = "PENDING", None, NEVER
        job.reason = "JobHoldMaxRequeue" if job.requeues > MAX_REQUEUES else reason

    def _happen(self, kind):
        busy = [job.node for job in self._in("RUNNING")]
        for job in [job for job in self._in("RUNNING") if job.node is busy[0]]:
            self._end(job, {"lose": "NODE_FAIL", "preempt": "PREEMPTED"}[kind])

    # The commands

    def call(self, command):
        """Answer a command line: exit status, standard output, standard error.

        Raises:
            FileNotFoundError: there is no such program.
        """
        words = _words(command) if isinstance(command, str) else list(command)
        program = words[0]
        self.calls.append(program)
        if program == "which":
            return (0 if self.has(words[1]) else 1), "", ""
        if not self.has(program):
            raise FileNotFoundError(2, "No such file or directory", program)
        silence = next((kind for start, end, kind in self.silences if start <= self.now < end), "")
        if silence == "blank":
            return 0, "", ""
        if silence == "fail" or (silence == "deaf" and program != "sbatch"):
            return 1, "", UNREACHABLE
        status, out, error = getattr(self, f"_{program}")(words[1:], command)
        if silence == "deaf" and not status:
            return 1, "", REFUSED + "Socket timed out on send/recv operation"
        return status, out, error

    def has(self, program):
        """Whether there is a program of SLURM's."""
        programs = {"sbatch", "squeue", "scontrol", "scancel", "sinfo"}
        return program in programs or (program == "sacct" and self.sacct != "absent")

    def _sbatch(self, words, call):
        given = _options(words)
        refusal = self._refusal(given)
        if refusal:
            self.refusals += 1
            return 1, "", refusal
        number = len(self.jobs) + 1
        self.jobs[number] = self._queue[number] = Job(
            number,
            given["name"],
            given["comment"],
            given["log"].replace("%j", str(number)),
            self.targets[given["work"]],
            Path(os.environ[FOLDER]),
            float(given.get("minutes", 60)),
            int(given.get("memory", 1000)),
            "--requeue" in words,
            _names(given),
            given.get("signal"),
            call,
            self.now,
        )
        return 0, f"{number}\n", ""

    def _refusal(self, given):
        if given.get("partition") not in self.partitions:
            return f"{REFUSED}Invalid partition name specified"
        if "None" in _names(given):  # of "--exclude=None assigned": the second word is a script
            return "sbatch: error: Unable to open file assigned"
        if self.site_rule:
            return f"sbatch: error: {self.site_rule}\n{REFUSED}Unspecified error"
        if given.get("account", "ours") != "ours":
            return f"{REFUSED}Invalid account or account/partition combination specified"
        for kind in filter(None, (given.get("gpus"), given.get("gres", "").removeprefix("gpu:"))):
            model, _, count = kind.rpartition(":")
            if model != (self.gpu_type or "") or count == "0":
                return f"{REFUSED}Invalid generic resource (gres) specification"
        memory = int(given.get("memory", 1000))
        if not any(node.memory >= memory and node.name not in _names(given) for node in self.nodes):
            return f"{REFUSED}Requested node configuration is not available"
        if len(self._queue) >= self.submit_limit:
            return (
                f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{REFUSED}Job violates "
                "accounting/QOS policy (job submit limit, user's size and/or time limits)"
            )
        return ""

    def _squeue(self, words, _):
        given = _options(words)
        lines = []
        ended = itertools.takewhile(self._known, reversed(self._ended))
        numbers = given.get("numbers", "").split(",")
        for job in [*self._queue.values(), *ended]:
            named = job.name == given.get("name") or str(job.number) in numbers
            if named and given["states"] in ("all", job.state):
                line = given["format"]
                node = job.node.name if job.node else job.last_node if job.ended else ""
                shown = (job.number, job.state, job.reason, node)
                for code, value in zip("iTrN", shown, strict=True):
                    line = line.replace(f"%{code}", str(value))
                lines.append(line)
        return 0, "".join(f"{line}\n" for line in lines), ""

    def _known(self, job):
        return job.ended is None or self.now - job.ended < self.min_job_age

    def _scontrol(self, words, _):
        asked = [word for word in words if not word.startswith("-")]
        if asked[1] == "config":
            return 0, f"MinJobAge = {self.min_job_age:.0f} sec\nMaxArraySize = 1001\n", ""
        if asked[1] == "partition":
            minutes = "UNLIMITED" if self.max_minutes == NEVER else f"{self.max_minutes:.0f}"
            return 0, f"PartitionName={asked[2]}\n   MaxTime={minutes} State=UP\n", ""
        job = self.jobs.get(int(asked[2]))
        if job is None or not self._known(job):
            return 1, "", "slurm_load_jobs error: Invalid job id specified"
        return 0, f"JobId={job.number} JobState={job.state} Reason={job.reason}\n", ""

    def _scancel(self, words, _):
        for word in words:
            job = self.jobs.get(int(word))
            if job and job.ended is None:
                self._end(job, "CANCELLED")
        return 0, "", ""

    def _sacct(self, words, _):
        if self.sacct == "disabled":
            return 1, "", "Slurm accounting storage is disabled"
        if "nodelist%-256" in words:
            return 0, "None assigned\n", ""
        if "--name" not in words:
            return 0, "", ""
        return 0, "".join(f"{job.number}|{job.state}\n" for job in self.jobs.values()), ""

    def _sinfo(self, words, _):
        return 0, "PARTITION\n" + "\n".join(self.partitions), ""


def _options(words):
    """The options of a command line that are listed in `OPTIONS`: `--mem 60` or `--mem=60`."""
    given = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        option, equals, value = word.partition("=")
        if option in OPTIONS:
            given[OPTIONS[option]] = value if equals else following
    return given


_words = functools.lru_cache(shlex.split)


def _names(given):
    return frozenset(filter(None, given.get("excluded", "").split(",")))


@contextmanager
def installed(slurm):
    """Let every subprocess of this process be a call of the simulated SLURM, on the PATH alone."""

    class Popen:
        def __init__(self, args, shell=False, **_):
            self.args = args
            try:
                self.returncode, self.out, self.error = slurm.call(args)
            except FileNotFoundError:
                if not shell:
                    raise
                self.returncode, self.out, self.error = 127, "", "sh: command not found"

        def communicate(self, input=None, timeout=None):
            return self.out, self.error

        def poll(self):
            return self.returncode

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    async def create_subprocess_exec(*args, **_):
        process = Popen(args)

        async def communicate():
            return process.out.encode(), process.error.encode()

        return mock.Mock(communicate=communicate, returncode=process.returncode)

    def which(program, *_, **__):
        return program if slurm.has(program) else None

    with (
        mock.patch.object(shutil, "which", which),
        mock.patch.object(subprocess, "Popen", Popen),
        mock.patch.object(asyncio, "create_subprocess_exec", create_subprocess_exec),
    ):
        yield slurm
