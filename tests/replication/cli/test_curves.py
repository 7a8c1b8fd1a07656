"""The curves of a run are those of its logs, epoch by epoch."""

import json
import os
import subprocess
import sys

import pandas as pd
import pytest

from replication.cli.curves import draw
from replication.training.log_tables import by_epoch, logs_of


def write_log(folder, entries, tail=""):
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(entry) + "\n" for entry in entries)
    (folder / "log.jsonl").write_text(lines + tail)
    return folder / "log.jsonl"


def entry(step, loss, per_epoch=100, **more):
    told = {"loss": loss, "lr": step / 1000, "images_per_second": 9.0}
    return {"step": step, "epoch": step / per_epoch, **told, **more}


def scores(step, top1, **more):
    more = {f"validation/{name}": score for name, score in more.items()}
    return {"step": step, "epoch": step / 100, "validation/top1": top1, **more}


def test_the_loss_of_an_epoch_is_the_mean_of_its_steps(tmp_path):
    """Entries after 50, 100, 150 and 180 steps; each tells the mean since the one before."""
    log = write_log(
        tmp_path,
        [entry(50, 4.0), entry(100, 3.0), scores(100, 60.0), entry(150, 2.0), entry(180, 1.0)],
        tail='{"step": 2',  # it is being written
    )
    table = by_epoch(log)
    assert table["epoch"].tolist() == [1.0, 1.8]
    assert table["step"].tolist() == [100, 180]
    assert table["loss"].tolist() == pytest.approx([3.5, (50 * 2 + 30 * 1) / 80])
    assert table["lr"].tolist() == [0.1, 0.18]
    assert table["validation/top1"].tolist()[0] == 60.0
    assert pd.isna(table["validation/top1"].tolist()[1])


def test_each_seed_is_a_line_of_each_panel(tmp_path):
    for seed in (10, 2):
        write_log(
            tmp_path / "run" / f"seed{seed}",
            [entry(100, 2.0), scores(100, 60.0 + seed), entry(200, 1.0), scores(200, 70.0)],
        )
    draw(tmp_path / "run")
    table = pd.read_csv(tmp_path / "run" / "curves.csv")
    assert table["seed"].tolist() == [2, 2, 10, 10]
    assert table["validation/top1"].tolist() == [62.0, 70.0, 70.0, 70.0]
    drawn = (tmp_path / "run" / "curves.svg").read_text()
    for words in ("training loss", "learning rate", "top1 on validation", "seed 2", "seed 10"):
        assert words in drawn
    assert (tmp_path / "run" / "curves.png").stat().st_size > 10_000


@pytest.mark.slow
def test_neither_a_matplotlibrc_nor_the_backend_of_a_notebook_changes_a_figure(tmp_path):
    (tmp_path / "matplotlibrc").write_text("axes.facecolor: grey\nxtick.direction: in\n")
    for folder in (tmp_path / "own" / "run", tmp_path / "plain" / "run"):
        write_log(folder / "seed0", [entry(100, 2.0), entry(200, 1.0)])
    subprocess.run(
        [sys.executable, "-m", "vitrail", "curves", "own/run"],
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "module://not_installed.backend"},
        check=True,
    )
    draw(tmp_path / "plain" / "run")
    for kind in ("svg", "png"):
        drawn = [(tmp_path / name / "run" / f"curves.{kind}") for name in ("own", "plain")]
        assert drawn[0].read_bytes() == drawn[1].read_bytes()


def test_a_folder_that_is_no_seed_is_passed_over(tmp_path):
    for name in ("seed0", "seed0.bak", "seeds", "seed01"):
        write_log(tmp_path / name, [entry(100, 2.0), entry(200, 1.0)])
    assert [set(table["seed"]) for table in logs_of(tmp_path)] == [{0}]


def test_a_run_that_is_not_validated_has_two_panels(tmp_path):
    write_log(tmp_path / "seed0", [entry(100, 2.0), entry(200, 1.0)])
    draw(tmp_path)
    assert "validation" not in (tmp_path / "curves.svg").read_text()
    assert "learning rate" in (tmp_path / "curves.svg").read_text()


def test_the_same_logs_give_the_same_bytes(tmp_path):
    write_log(tmp_path / "seed0", [entry(100, 2.0), entry(200, 1.0)])
    files = []
    for _ in range(2):
        draw(tmp_path)
        files.append([(tmp_path / f"curves.{kind}").read_bytes() for kind in ("svg", "png", "csv")])
    assert files[0] == files[1]


@pytest.mark.parametrize("entries", [None, [], [scores(100, 60.0)]])
def test_a_folder_without_a_training_step_is_refused(tmp_path, vitrail, entries):
    if entries is not None:
        write_log(tmp_path / "seed0", entries)
    done = vitrail("curves", tmp_path)
    assert done.code == 2
    assert str(tmp_path) in done.err
    assert not list(tmp_path.glob("curves.*"))


def test_the_runs_of_a_paper_are_drawn_though_some_have_not_begun(tmp_path, vitrail):
    """The folder of a paper's measurements of no run lies among those of its runs."""
    (tmp_path / "a-not-begun" / "nodes").mkdir(parents=True)
    write_log(tmp_path / "b" / "seed0", [entry(100, 2.0), entry(200, 1.0)])
    (tmp_path / "measurements").mkdir()
    done = vitrail("curves", *sorted(tmp_path.iterdir()))
    assert done.code == 0, done.err
    assert [path.parent.name for path in tmp_path.rglob("curves.svg")] == ["b"]
    assert "a-not-begun" in done.out
    assert "measurements" in done.out


def test_the_command_draws_several_runs(tmp_path, vitrail):
    for name in ("one", "two"):
        write_log(tmp_path / name / "seed0", [entry(100, 2.0), entry(200, 1.0)])
    done = vitrail("curves", tmp_path / "one", tmp_path / "two")
    assert done.code == 0, done.err
    assert all((tmp_path / name / "curves.svg").is_file() for name in ("one", "two"))
