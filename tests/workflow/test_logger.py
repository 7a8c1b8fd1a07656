"""What `--logger vitrail` says of the steps, told to it as Snakemake tells them."""

import logging
from types import SimpleNamespace

import pytest
from snakemake_interface_logger_plugins.common import LogEvent

import snakemake_logger_plugin_vitrail as plugin

TRAINING = {
    "event": LogEvent.JOB_INFO,
    "jobid": 7,
    "rule_name": "train",
    "wildcards": {"paper": "shift", "run": "a_swin_t-cifar10-0123abcd", "seed": "0"},
}


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr(plugin, "monotonic", lambda: clock.seconds)
    return clock


def handler(dryrun=False):
    return plugin.LogHandler(
        SimpleNamespace(
            dryrun=dryrun, stdout=dryrun, nocolor=True, quiet=None, show_failed_logs=False
        ),
        None,
    )


def tell(handler, message=None, level=logging.INFO, **fields):
    handler.emit(logging.makeLogRecord({"msg": message, "levelno": level, **fields}))


def test_a_step_that_is_done_is_one_line(clock, capsys):
    log = handler()
    tell(log, plugin.SELECTION)
    tell(log, "Execute 1 jobs...", event=LogEvent.JOB_STARTED, jobs=[7])
    tell(log, **TRAINING)
    clock.seconds += 90
    tell(log, "Finished jobid: 7 (Rule: train)", event=LogEvent.JOB_FINISHED, job_id=7)
    tell(log, event=LogEvent.PROGRESS, done=3, total=8)
    assert capsys.readouterr().err == "[3/8, 90 s] train shift a_swin_t-cifar10 0: 90 s\n"


def test_of_two_that_run_each_has_its_own_time(clock, capsys):
    log = handler()
    for job in (7, 8):
        tell(log, **{**TRAINING, "jobid": job})
        clock.seconds += 300
    for done, job in enumerate((8, 7), 1):
        tell(log, event=LogEvent.JOB_FINISHED, job_id=job)
        tell(log, event=LogEvent.PROGRESS, done=done, total=8)
    lines = capsys.readouterr().err.splitlines()
    assert [line.rpartition(": ")[2] for line in lines] == ["5 min", "10 min"]
    assert all("/8, 10 min]" in line for line in lines)


def test_a_step_of_which_no_start_was_told_is_counted_as_snakemake_counts(capsys):
    """As with `--quiet rules`."""
    log = handler()
    tell(log, event=LogEvent.JOB_FINISHED, job_id=7)
    tell(log, event=LogEvent.PROGRESS, done=2, total=8)
    assert capsys.readouterr().err == "2 of 8 steps (25%) done\n"


def test_warnings_and_errors_are_shown_as_they_are(capsys):
    log = handler()
    tell(log, "Out of disk", logging.WARNING)
    tell(log, "Exiting because a job execution failed.", logging.ERROR, event=LogEvent.ERROR)
    assert capsys.readouterr().err.splitlines() == [
        "Out of disk",
        "Exiting because a job execution failed.",
    ]


def test_a_dry_run_is_written_to_standard_output(capsys):
    log = handler(dryrun=True)
    tell(log, "This was a dry-run.")
    assert capsys.readouterr() == ("This was a dry-run.\n", "")
