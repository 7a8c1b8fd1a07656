"""What `--logger vitrail` says of the steps, told to it as Snakemake tells them."""

import logging
from types import SimpleNamespace

import pytest
from snakemake.logging import DefaultFormatter
from snakemake_interface_logger_plugins.common import LogEvent

import snakemake_logger_plugin_vitrail as plugin

TRAINING = {
    "event": LogEvent.JOB_INFO,
    "jobid": 7,
    "rule_name": "train",
    "wildcards": {"paper": "shift", "run": "a_swin_t-0123abcd", "seeds": "0-1"},
}


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr(plugin, "monotonic", lambda: clock.seconds)
    return clock


@pytest.fixture
def handler():
    handler = plugin.LogHandler(SimpleNamespace(dryrun=False), None)
    handler.setFormatter(DefaultFormatter())
    return handler


def tell(handler, message=None, level=logging.INFO, **fields):
    handler.emit(logging.makeLogRecord({"msg": message, "levelno": level, **fields}))


def test_a_step_that_is_done_is_one_line(handler, clock, capsys):
    tell(handler, plugin.SELECTION)
    tell(handler, "Execute 1 jobs...", event=LogEvent.JOB_STARTED, jobs=[7])
    tell(handler, **TRAINING)
    clock.seconds += 90
    tell(handler, "Finished jobid: 7 (Rule: train)", event=LogEvent.JOB_FINISHED, job_id=7)
    tell(handler, event=LogEvent.PROGRESS, done=3, total=8)
    assert capsys.readouterr().err == "[3/8, 90 s] train shift a_swin_t 0-1: 90 s\n"


def test_steps_that_end_at_once_are_counted_one_by_one(handler, clock, capsys):
    for job in (7, 8):
        tell(handler, **{**TRAINING, "jobid": job})
        clock.seconds += 300
    for job in (8, 7):
        tell(handler, event=LogEvent.JOB_FINISHED, job_id=job)
    tell(handler, event=LogEvent.PROGRESS, done=2, total=8)
    assert [line.split(" train")[0] for line in capsys.readouterr().err.splitlines()] == [
        "[1/8, 10 min]",
        "[2/8, 10 min]",
    ]


def test_warnings_and_errors_are_shown_as_they_are(handler, capsys):
    tell(handler, "Out of disk", logging.WARNING)
    tell(handler, "Exiting because a job execution failed.", logging.ERROR, event=LogEvent.ERROR)
    assert capsys.readouterr().err.splitlines() == [
        "Out of disk",
        "Exiting because a job execution failed.",
    ]
