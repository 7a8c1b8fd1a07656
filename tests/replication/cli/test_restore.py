"""What is published counts as made, without its weights, and can be extended."""

import shlex
import shutil

import pandas as pd
import pytest

from replication.plan.catalog import load_catalog
from replication.records.records import read_record
from replication.report.ledger import as_lines, published_folder, read_published

NUMBERS = {"plain": [80.0, 81.0, 82.0], "mixup": [70.0, 71.0, 72.0]}
MORE = {"published": [90.0, 91.0, 92.0]}


@pytest.fixture
def commit(git):
    def run():
        git("add", ".")
        git("commit", "--quiet", "-m", "Publish")

    return run


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


def test_what_exists_here_is_kept(restore, make, git):
    make({"plain": [60.0, 61.0, 62.0]}, commit=git("rev-parse", "HEAD"))
    here = {path: record.content for path, record in restored().items()}
    restore()
    assert here.items() <= {path: record.content for path, record in restored().items()}.items()


def test_measurements_of_other_weights_are_not_restored(restore, make, git):
    """Here "plain" was trained anew and not yet measured."""
    catalog = make({"plain": [60.0, 61.0, 62.0]}, commit=git("rev-parse", "HEAD"))
    measured = [taken.path for taken in catalog.paper("tiny").measurements("accuracy", "plain")]
    for path in measured:
        path.unlink()
    restore()
    assert not any(path.exists() for path in measured)


def test_measurements_by_other_code_are_not_restored(restore, published, commit):
    records = read_published(published)
    for record in records.values():
        if record.node.kind == "measurement":
            record.outcome["code"] = "0123456789abcdef"
    (published / "tiny" / "nodes.jsonl.gz").write_bytes(as_lines(records.values()))
    restore()
    assert {record.node.kind for record in restored().values()} == {"training"}


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
