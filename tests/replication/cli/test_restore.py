"""What is published counts as made, without its weights, and can be extended."""

import io
import shlex
import shutil

import pandas as pd
import pytest

from replication.plan.catalog import load_catalog
from replication.publishing.publish import training_logs
from replication.records.records import read_record
from replication.report.ledger import as_lines, published_folder, read_published

NUMBERS = {"plain": [80.0, 81.0, 82.0], "mixup": [70.0, 71.0, 72.0]}
MORE = {"published": [90.0, 91.0, 92.0]}


@pytest.fixture
def published(make, git, commit, vitrail):
    """The tiny paper's Table 1 is published with its training logs; the folder of runs is empty."""
    catalog = make(NUMBERS, commit=git("rev-parse", "HEAD"))
    for name in NUMBERS:
        for run in catalog.paper("tiny").runs(name):
            (run.folder / "log.jsonl").write_text('{"step": 18, "epoch": 1, "loss": 3.0}\n')
    assert vitrail("publish", "--scale", "laptop").code == 0
    commit()
    shutil.rmtree(catalog.runs_root)
    shutil.rmtree(catalog.results / "tiny")
    receipt = catalog.receipt_of("digits")
    receipt.parent.mkdir(parents=True)
    receipt.write_text("{}")
    return published_folder(catalog)


@pytest.fixture
def restore(published, vitrail):
    return lambda: vitrail("restore", "tiny", "--scale", "laptop")


def files_of(folder):
    return {file.name: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def restored():
    """The records of trainings and measurements that exist."""
    return {
        path: record
        for path in load_catalog(scale="laptop").records
        if (record := read_record(path)) and record.node.kind != "rendering"
    }


def test_what_was_published_can_be_published_again_without_its_weights(
    restore, published, draw, vitrail, git
):
    before = files_of(published)
    done = restore()
    assert done.code == 0, done.err
    catalog = load_catalog(scale="laptop")
    records = read_published(published)
    assert {path: record.content for path, record in restored().items()} == {
        path: record.content for path, record in records.items() if record.node.kind != "rendering"
    }
    draw(catalog, catalog.paper("tiny").artifacts["table1"], git("rev-parse", "HEAD"))
    assert vitrail("publish", "--scale", "laptop").code == 0
    assert {name: content for name, content in files_of(published).items() if "gz" not in name} == {
        name: content for name, content in before.items() if "gz" not in name
    }


def test_a_new_training_is_published_beside_restored_ones(restore, published, make, git, vitrail):
    restore()
    make(MORE, ratio=None, commit=git("rev-parse", "HEAD"))
    assert vitrail("publish", "--scale", "laptop").code == 0
    trained = {
        record.node.run.name
        for record in read_published(published).values()
        if record.node.kind == "training"
    }
    assert trained == {*NUMBERS, *MORE}
    assert pd.read_csv(published / "tiny" / "table2.csv")["measured"].tolist() == [91.0]
    logs = pd.read_csv(published / "tiny" / "training_logs.csv")
    assert len(logs) == 6


def test_a_copy_is_no_repetition(restore, make, draw, vitrail, git):
    catalog = load_catalog(scale="laptop")
    restore()
    draw(catalog, catalog.paper("tiny").artifacts["table1"])
    assert "7 measurements here, restored or" in vitrail("verify", "--scale", "laptop").out
    shutil.rmtree(catalog.runs_root)
    make(NUMBERS, commit="b" * 40)
    assert "restored or" not in vitrail("verify", "--scale", "laptop").out


def test_what_exists_here_is_kept(restore, make, git):
    make({"plain": [60.0, 61.0, 62.0]}, commit=git("rev-parse", "HEAD"))
    here = {path: record.content for path, record in restored().items()}
    assert restore().code == 0
    assert here.items() <= {path: record.content for path, record in restored().items()}.items()


def test_a_training_that_has_begun_here_is_neither_replaced_nor_are_its_logs(
    restore, published, draw, vitrail, git
):
    """Of "plain" a first epoch was trained again; its second seed is finished, but not measured."""
    before = pd.read_csv(published / "tiny" / "training_logs.csv")
    catalog = load_catalog(scale="laptop")
    first, second, _ = catalog.paper("tiny").runs("plain")
    (first.folder / "checkpoints").mkdir(parents=True)
    (first.folder / "checkpoints" / "step-00000009.pt").touch()
    (first.folder / "log.jsonl").write_text('{"step": 9, "epoch": 1, "loss": 5.0}\n')
    second.folder.mkdir(parents=True)
    second.weights.touch()
    assert restore().code == 0
    names = [path.parent.name for path in restored() if path.name.startswith("trained-")]
    home = first.home.name
    assert names.count(home) == 1
    assert not (first.record.exists())
    assert not (second.record.exists())
    assert not any(path.is_relative_to(first.home) for path in restored() if "seed0" in path.name)
    logs = training_logs([first], published, read_published(published))
    (csv,) = logs.values()
    assert pd.read_csv(io.BytesIO(csv)).equals(before)


def test_what_other_code_measured_is_not_restored_nor_are_the_trainings(restore, published):
    """A training without its measurements could not be measured: its weights are not published."""
    records = read_published(published)
    for record in records.values():
        if record.node.kind == "measurement" and record.node.measurement.run:
            record.outcome["code"] = "0123456789abcdef"
    (published / "tiny" / "nodes.jsonl.gz").write_bytes(as_lines(records.values()))
    assert restore().code == 0
    assert [path.name.partition("-")[0] for path in restored()] == ["facts"]


def test_a_second_time_the_records_are_written_after_their_inputs(restore):
    restore()
    times = {path: path.stat().st_mtime_ns for path in restored()}
    load_catalog(scale="laptop").receipt_of("digits").touch()
    assert restore().code == 0
    assert all(path.stat().st_mtime_ns > time for path, time in times.items())


def test_where_nothing_is_published_as_planned_it_says_so(restore, checkout):
    settings = checkout / "configs" / "default.yaml"
    settings.write_text(settings.read_text().replace("runs_root: runs", "runs_root: elsewhere"))
    done = restore()
    assert done.code == 2
    assert "nothing to restore below elsewhere/" in done.err


def test_a_restored_training_that_was_edited_needs_its_weights(restore, rewrite, vitrail):
    restore()
    path = next(path for path, record in restored().items() if record.node.kind == "training")
    rewrite(path, lambda content: content.update(sha256="0" * 64))
    told = " ".join(vitrail("status", "--scale", "laptop").out.split())
    assert f"{path} names weights that are gone" in told


def test_without_its_data_nothing_is_restored_and_the_command_fetches_them(restore, published):
    catalog = load_catalog(scale="laptop")
    receipt = catalog.receipt_of("digits")
    receipt.unlink()
    done = restore()
    assert done.code == 2
    command = shlex.split(done.err.rpartition("first run ")[2])
    assert command == ["snakemake", str(receipt), "--config", "scale=laptop"]
    assert catalog.makes(receipt)
    assert not restored()
