import pytest

from vitrine.training import attempts as module
from vitrine.training.attempts import Attempts


def test_the_cost_of_a_run_includes_its_killed_attempts(tmp_path, monkeypatch):
    now = iter([0.0, 0.0, 50.0, 1000.0, 1000.0, 1030.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(now))
    killed = Attempts(tmp_path / "attempts.json", images_per_step=64)
    killed.begin(0)
    killed.note(120)
    last = Attempts(tmp_path / "attempts.json", images_per_step=64)
    last.begin(100)
    last.note(180)
    summary = last.summary()
    assert summary["attempts"] == 2
    assert summary["interruptions"] == 1
    assert summary["wall_seconds"] == 80.0
    assert summary["steps_repeated"] == 20
    assert summary["images_per_second"] == 200 * 64 / 80


@pytest.mark.parametrize("content", [None, "", "[{]", '[{"wrong": 1}]', "3"])
def test_a_record_that_cannot_be_read_counts_as_empty(tmp_path, content):
    if content is not None:
        (tmp_path / "attempts.json").write_text(content)
    attempts = Attempts(tmp_path / "attempts.json", images_per_step=64)
    attempts.begin(0)
    assert attempts.summary()["attempts"] == 1
