import json

import pytest

from replication.training import run_folder as module
from replication.training.run_folder import Attempts, read_finished


def test_the_cost_of_a_run_includes_its_killed_attempts(tmp_path, monkeypatch):
    now = iter([0.0, 0.0, 50.0, 1000.0, 1000.0, 1030.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(now))
    killed = Attempts(tmp_path / "attempts.json", 64, "a1", "c0de")
    killed.begin(0)
    killed.note(120)
    last = Attempts(tmp_path / "attempts.json", 64, "a1", "c0de")
    last.begin(100)
    last.note(180)
    summary = last.summary()
    assert summary["attempts"] == 2
    assert summary["interruptions"] == 1
    assert summary["wall_seconds"] == 80.0
    assert summary["steps_repeated"] == 20
    assert summary["images_per_second"] == 200 * 64 / 80


@pytest.fixture
def at(tmp_path):
    """Begin an attempt at one run at a commit, by some code."""

    def begin(commit, code="c0de"):
        attempts = Attempts(tmp_path / "attempts.json", 64, commit, code)
        attempts.begin(0)
        return attempts

    return begin


def test_every_commit_that_a_run_was_trained_at_is_named_in_order(at):
    for commit in ("b2", "b2", "a1-dirty", None):
        attempts = at(commit)
    assert attempts.summary()["commit"] == "b2+a1-dirty+unknown"


def test_all_code_that_a_run_was_trained_by_is_named_in_order(at):
    for code in ("c1", "c0", "c1"):
        attempts = at("a1", code)
    assert attempts.summary()["code"] == "c1+c0"


def test_an_attempt_that_noted_no_commit_still_counts(at, tmp_path):
    old = {"started": "2026-01-01T00:00:00+00:00", "first_step": 0, "last_step": 9, "seconds": 1.0}
    (tmp_path / "attempts.json").write_text(json.dumps([old]))
    summary = at("a1").summary()
    assert (summary["attempts"], summary["commit"]) == (2, "unknown+a1")


def test_a_runs_facts_name_the_commit_that_each_attempt_was_planned_at(recipe, run):
    run(recipe, stop_after=3, commit="a1")
    folder = run(recipe, commit="b2")
    assert read_finished(folder)["commit"] == "a1+b2"


@pytest.mark.parametrize("content", [None, "", "[{]", '[{"wrong": 1}]', "3"])
def test_a_record_that_cannot_be_read_counts_as_empty(tmp_path, content):
    if content is not None:
        (tmp_path / "attempts.json").write_text(content)
    attempts = Attempts(tmp_path / "attempts.json", 64, "a1", "c0de")
    attempts.begin(0)
    assert attempts.summary()["attempts"] == 1
