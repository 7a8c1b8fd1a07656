"""``--logger vitrail``: Snakemake's log with one line for each step that is done.

    [31/668, 4 min] train variance vit_s-mixup0.0-cutmix1.0 0: 11 s

A line has the number of steps done and of all steps, the time since Snakemake began the first step,
the rule, what the step made (its wildcards without the hashes of recipes), and the time since
Snakemake began the step, which on a cluster includes its wait in the queue. Snakemake's own handler
writes all other messages, such as errors and dry runs.
"""

import re
import sys
from logging import LogRecord
from time import monotonic
from typing import NamedTuple

from snakemake.logging import ColorizingTextHandler, DefaultFormatter
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

__all__ = ["LogHandler"]

HASH = re.compile(r"-[0-9a-f]{8}(?![0-9a-f])")
SELECTION = "Select jobs to execute..."  # Snakemake's message before each step, which has no event


class Step(NamedTuple):
    """A step: its name in the log, and the time when it began, in seconds."""

    name: str
    began: float


class LogHandler(LogHandlerBase):
    """Writes to standard error, and a dry run to standard output."""

    writes_to_stream = True
    writes_to_file = False
    has_filter = False
    has_formatter = True
    needs_rulegraph = False

    def __post_init__(self) -> None:  # the base class calls it
        settings = self.common_settings
        stream = sys.stdout if settings.stdout else sys.stderr
        formatter = DefaultFormatter(settings.quiet, settings.show_failed_logs)
        self.plain = ColorizingTextHandler(settings.nocolor, stream, formatter)
        self.running: dict[int, Step] = {}
        self.finished: Step | None = None
        self.first: float | None = None

    def emit(self, record: LogRecord) -> None:
        """Record when a step begins and ends; write a line when Snakemake counts it as done."""
        event = getattr(record, "event", None)
        if self.common_settings.dryrun:
            self.plain.handle(record)
        elif event == LogEvent.JOB_INFO:
            step = Step(_name_of(record), monotonic())
            self.running[record.__dict__["jobid"]] = step
            self.first = self.first or step.began
        elif event == LogEvent.JOB_FINISHED:  # with `--quiet rules` its beginning was not reported
            self.finished = self.running.pop(record.__dict__["job_id"], None)
        elif event == LogEvent.PROGRESS and self.finished and self.first:
            record.event = None
            record.msg = _told(self.finished, self.first, record)
            self.plain.handle(record)
        elif event != LogEvent.JOB_STARTED and record.msg != SELECTION:
            self.plain.handle(record)


def _name_of(record: LogRecord) -> str:
    """Return the name of a step: its rule and its wildcards, without hashes."""
    wildcards = (record.__dict__["wildcards"] or {}).values()
    return " ".join([record.__dict__["rule_name"], *(HASH.sub("", word) for word in wildcards)])


def _told(step: Step, first: float, progress: LogRecord) -> str:
    now, counts = monotonic(), progress.__dict__
    place = f"{counts['done']}/{counts['total']}, {_told_time(now - first)}"
    return f"[{place}] {step.name}: {_told_time(now - step.began)}"


def _told_time(seconds: float) -> str:
    """Return a time as text: in seconds below two minutes, otherwise in minutes."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
