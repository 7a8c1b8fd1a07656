import errno
import json
import os
import sys

import pytest

from replication.training import training_log as module
from replication.training.training_log import TrainingLog
from vitrail.errors import VitrailError


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""

    class Clock:
        now = 100.0

        def monotonic(self) -> float:
            return self.now

    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def make(folder, step=0, **options) -> TrainingLog:
    return TrainingLog(folder, step, 400, 100, 64, **{"silent": False, **options})


def test_speed_is_that_since_the_last_entry_and_the_time_left_that_of_the_attempt(
    tmp_path, clock, capsys
):
    with make(tmp_path, step=100) as journal:
        clock.now += 10
        journal.record(150, 2.0, 1e-3)
        clock.now += 40
        journal.record(200, 1.5, 1e-3)
    entries = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [entry["images_per_second"] for entry in entries] == [50 * 64 / 10, 50 * 64 / 40]
    assert [entry["epoch"] for entry in entries] == [1.5, 2.0]
    # 100 steps in 50 s, 200 to go
    assert "step 200/400, epoch 2/4, loss 1.5000, lr 1.00e-03, 80 images/s, 2 min left" in (
        capsys.readouterr().err
    )


def test_lines_come_every_half_minute_and_the_last_one_always(tmp_path, clock, capsys):
    with make(tmp_path) as journal:
        for step in range(10, 110, 10):
            clock.now += 10
            journal.record(step, 1.0, 1e-3)
    steps = [line.split("step ")[1].split("/")[0] for line in capsys.readouterr().err.splitlines()]
    assert steps == ["30", "60", "90", "100"]


def test_the_line_that_waits_comes_before_a_message(tmp_path, clock, capsys):
    with make(tmp_path) as journal:
        journal.record(10, 1.0, 1e-3)
        journal.say("stopped")
    lines = capsys.readouterr().err.splitlines()
    assert "step 10/400" in lines[0]
    assert lines[1].endswith(": stopped")
    assert len(lines) == 2


def test_a_terminal_gets_one_line_that_renews_itself(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with make(tmp_path) as journal:
        journal.record(100, 1.25, 1e-3)
        journal.record(400, 1.0, 1e-3)
    shown = capsys.readouterr().err
    assert "400/400" in shown
    assert "loss=1.0000" in shown
    assert shown.count("\n") == 1


def test_a_validation_is_an_entry_and_its_time_counts_in_no_speed(tmp_path, clock, capsys):
    with make(tmp_path) as journal:
        clock.now += 10
        journal.record(100, 2.0, 1e-3)
        clock.now += 1000
        journal.validated(100, {"top1": 71.25, "top5": 99.0})
        clock.now += 10
        journal.record(200, 1.5, 1e-3)
        journal.validated(200, {})  # nothing was asked
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    scores = {"validation/top1": 71.25, "validation/top5": 99.0}
    assert lines[1] == {"step": 100, "epoch": 1.0, **scores}
    assert [line["images_per_second"] for line in lines[::2]] == [640, 640]
    assert "step 200/400, epoch 2/4" in (shown := capsys.readouterr().err)
    assert shown.endswith("left, top1 71.25, top5 99\n")


def test_a_process_that_does_not_lead_is_silent(tmp_path, capsys):
    with make(tmp_path, silent=True) as journal:
        journal.record(10, 1.0, 1e-3)
        journal.say("stopped")
    assert capsys.readouterr().err == ""
    assert not (tmp_path / "log.jsonl").exists()


def test_entries_beyond_the_resumed_step_and_half_lines_are_dropped(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"step": 50}\n{"step": 100}\n{"step": 150}\n{"ste')
    with make(tmp_path, step=100):
        assert log.read_text() == '{"step": 50}\n{"step": 100}\n'


@pytest.mark.parametrize(
    "broken", ['{"step": 7', "7", "[]", "null", '{"loss": 1}', '{"step": "7"}', "\udcff\udcfe", ""]
)
def test_a_broken_line_is_named_and_left_out_and_the_others_stay(tmp_path, capsys, broken):
    log = tmp_path / "log.jsonl"
    content = f'{{"step": 50}}\n{broken}\n{{"step": 100}}\n'
    log.write_bytes(content.encode("utf-8", "surrogateescape"))
    with make(tmp_path, step=100):
        assert log.read_text() == '{"step": 50}\n{"step": 100}\n'
    assert f"warning: {log}, line 2 is no entry and left out\n" in capsys.readouterr().err


def test_a_log_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "log.jsonl").mkdir()
    with pytest.raises(VitrailError, match=r"cannot read .*log\.jsonl \(Is a directory\): corr"):
        make(tmp_path, step=100)


def test_a_resume_that_cannot_write_leaves_the_log_as_it_was(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    log = tmp_path / "log.jsonl"
    log.write_text('{"step": 50}\n{"step": 150}\n')
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(VitrailError, match=r"log\.jsonl: No space left"):
        make(tmp_path, step=100)
    assert log.read_text() == '{"step": 50}\n{"step": 150}\n'


def test_a_log_that_cannot_be_written_is_named(tmp_path):
    with make(tmp_path) as journal:
        (tmp_path / "log.jsonl").mkdir()
        with pytest.raises(VitrailError, match=r"cannot write .*log\.jsonl"):
            journal.record(10, 1.0, 1e-3)
