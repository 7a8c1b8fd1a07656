"""``vitrail search`` asks for the trials that ``searched.csv`` lacks, and adds their scores."""

import sys
from types import SimpleNamespace

import pytest

from replication.cli import search
from replication.config.schema import as_yaml, read_yaml
from replication.config.tuning import BASELINE, read_found
from replication.plan.catalog import load_catalog
from replication.records.records import complete
from vitrail.files import sha256

SEARCHES = [{"rates": [1e-3, 1e-2, 3e-2], "of": {"plain": "plain"}}]
SCORES = {1e-3: 50.0, 1e-2: 70.0, 3e-2: 60.0, 0.0: 40.0}


@pytest.fixture
def searched(checkout):
    """The scale searches one recipe of three; the file that it will be found in."""
    folder = checkout / "configs" / "papers" / "tiny"
    path = folder / "scales" / "small.yaml"
    path.write_text(as_yaml({**read_yaml(path), "searches": SEARCHES}))
    return folder / "searched.csv"


@pytest.fixture
def snakemake(searched, monkeypatch):
    """Leave the records of all due trials in place of Snakemake; what it was asked for."""
    asked = []

    def run(command, **_):
        assert command[:3] == [sys.executable, "-m", "snakemake"]
        asked.append(command[3 : command.index("--config")])
        catalog = load_catalog(scale="small")
        for trial, (measurement, _) in catalog.paper("tiny").trials.items():
            if "-n" in command or measurement.path.exists():
                continue
            run, node = measurement.run, catalog.measurement_node(measurement)
            weights = {}
            if run:
                run.folder.mkdir(parents=True)
                run.weights.write_text("trained")
                weights = {"weights": sha256(run.weights)}
                training = catalog.training_node(run)
                facts = {"device": "cpu", "commit": "a", "code": training.code}
                complete(training, {"sha256": weights["weights"], "facts": facts})
            keys = [key for own, key in catalog.paper("tiny").trials.values() if own == measurement]
            values = dict.fromkeys(keys, SCORES[trial.rate] + trial.length)
            origin = {"device": "cpu", "commit": "a", "wall_seconds": 1.0}
            outcome = {"values": values, "code": node.code, **weights}
            complete(node, {**outcome, "provenance": origin})
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(search, "subprocess", SimpleNamespace(run=run))
    return asked


def test_it_asks_for_the_table_twice_and_notes_every_score(searched, snakemake, vitrail):
    assert vitrail("search", "tiny", "--scale", "small").code == 0
    assert snakemake == [["tiny_search"], ["tiny_search"]]
    found = read_found(searched)
    once = {trial.rate: score for trial, score in found.items() if trial.recipe == "plain"}
    assert len([trial for trial in found if trial.recipe == "plain" and trial.length == 1]) == 6
    twice = {trial.rate: score for trial, score in found.items() if trial.length == 2}
    assert twice == {1e-2: 72.0}
    assert once == {1e-3: 51.0, 1e-2: 72.0, 3e-2: 61.0}
    assert len([trial for trial in found if trial.recipe.startswith(BASELINE)]) == 6
    assert load_catalog(scale="small").paper("tiny").recipe("plain").optimizer.lr == 1e-2


def test_what_is_noted_is_not_asked_for_again(searched, snakemake, vitrail):
    vitrail("search", "tiny", "--scale", "small")
    before = searched.read_bytes()
    assert vitrail("search", "tiny", "--scale", "small").code == 0
    assert len(snakemake) == 2
    assert searched.read_bytes() == before


def test_scores_of_another_machine_are_not_made_again(searched, snakemake, vitrail, checkout):
    """Without their records only what is lacking is asked for, by its records."""
    vitrail("search", "tiny", "--scale", "small")
    for record in checkout.glob("runs/**/*.json"):
        record.unlink()
    lines = searched.read_text().splitlines()
    (lost,) = (line for line in lines if ",1,0.03,101," in line)
    searched.write_text("\n".join(line for line in lines if line != lost) + "\n")
    (due,) = (
        score.measurement.path
        for trial, score in load_catalog(scale="small").paper("tiny").trials.items()
        if (trial.length, trial.rate, trial.seed) == (1, 3e-2, 101)
    )
    about = load_catalog(scale="small").paper("tiny")
    lacking = [trial for trial in about.trials if trial not in about.searches.found]
    assert search.targets_of(about, lacking) == [str(due)]


def test_a_dry_run_asks_once_and_notes_nothing(searched, snakemake, vitrail):
    assert vitrail("search", "tiny", "--scale", "small", "--", "-n").code == 0
    assert snakemake == [["tiny_search", "-n"]]
    assert not searched.exists()


def test_what_snakemake_says_at_its_end_is_the_end(searched, monkeypatch, vitrail):
    failed = SimpleNamespace(run=lambda *_, **__: SimpleNamespace(returncode=3))
    monkeypatch.setattr(search, "subprocess", failed)
    assert vitrail("search", "tiny", "--scale", "small").code == 3


def test_a_scale_without_searches_says_where_to_write_them(searched, vitrail):
    done = vitrail("search", "tiny", "--scale", "full")
    assert (done.code, done.out) == (2, "")
    assert "scales/full.yaml" in done.err
