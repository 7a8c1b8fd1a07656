"""``--logger vitrail``: Snakemake's log with one line for each step that is done.

    [97/668, 12 min] train shift a_swin_t 0: 80 s

These are the steps done and all steps, the time since the first step began, the rule, what the step
made (its wildcards without the hashes of recipes), and how long it took. Errors, warnings and the
log of a dry run look as they do without this plugin.
"""

import re
import sys
from logging import LogRecord
from time import monotonic
from typing import NamedTuple

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

__all__ = ["LogHandler"]

HASH = re.compile(r"-[0-9a-f]{8}(?![0-9a-f])")
SELECTION = "Select jobs to execute..."


class Step(NamedTuple):
    """A step that runs: what is said of it, and when it began in seconds."""

    name: str
    began: float


class LogHandler(LogHandlerBase):
    """Writes to standard error; what it does not count it formats as Snakemake does."""

    writes_to_stream = True
    writes_to_file = False
    has_filter = False
    has_formatter = False
    needs_rulegraph = False

    def __post_init__(self) -> None:  # which the base class calls
        self.running: dict[int, Step] = {}
        self.finished: list[Step] = []
        self.first: float | None = None

    def emit(self, record: LogRecord) -> None:
        """Note when a step begins and ends; write a line when it is counted as done."""
        event = getattr(record, "event", None)
        if self.common_settings.dryrun:
            self._write(self.format(record))
        elif event == LogEvent.JOB_INFO:
            step = Step(_name_of(record), monotonic())
            self.running[record.__dict__["jobid"]] = step
            self.first = self.first or step.began
        elif event == LogEvent.JOB_FINISHED:
            self.finished.append(self.running.pop(record.__dict__["job_id"]))
        elif event == LogEvent.PROGRESS:
            self._write_finished(record.__dict__["done"], record.__dict__["total"])
        elif event != LogEvent.JOB_STARTED and record.msg != SELECTION:
            self._write(self.format(record))

    def _write_finished(self, done: int, total: int) -> None:
        now = monotonic()
        for place, step in enumerate(self.finished, done - len(self.finished) + 1):
            since = told_time(now - (self.first or now))
            took = told_time(now - step.began)
            self._write(f"[{place}/{total}, {since}] {step.name}: {took}")
        self.finished.clear()

    def _write(self, text: str) -> None:
        if text and text != "None":
            print(text, file=sys.stderr, flush=True)


def _name_of(record: LogRecord) -> str:
    """Return the rule and its wildcards, such as "train shift a_swin_t 0"."""
    wildcards = (record.__dict__["wildcards"] or {}).values()
    return " ".join([record.__dict__["rule_name"], *(HASH.sub("", word) for word in wildcards)])


def told_time(seconds: float) -> str:
    """Return a time in seconds below two minutes, and in minutes from there."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
