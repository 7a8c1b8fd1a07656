"""A record is wrong if it, or what it rests on, is not what the planned nodes would give."""

import json
import shlex
from functools import partial

import pytest

from replication.claims.comparison import read_measurement
from replication.config.schema import as_yaml, read_yaml
from replication.plan.catalog import load_catalog
from replication.records.nodes import parse_node
from replication.records.records import (
    Ledger,
    complete,
    digest_once,
    parse_record,
    read_record,
    require_record,
)
from replication.report.ledger import ledger_of, planned_node
from replication.report.tables import read_measured, render
from vitrail.errors import VitrailError
from vitrail.files import sha256

ROOTS = ("data_root", "runs_root", "results_root")
PLACE = {"device": "cpu", "commit": "a" * 40}


@pytest.fixture
def catalog(small_checkout):
    """A paper whose table shows a network and its fine-tuning, each trained under two seeds."""
    folder = small_checkout / "configs" / "papers" / "template"
    recipes = read_yaml(folder / "recipes.yaml")
    tuned = {"model": {"args": {"width": 64}, "weights_from": "wide"}}
    recipes["axes"]["width"] = {"wide": {"model": {"args": {"width": 64}}}, "tuned": tuned}
    (folder / "recipes.yaml").write_text(as_yaml(recipes))
    artifacts = read_yaml(folder / "artifacts.yaml")
    table = artifacts["artifacts"]["table1"]
    table["rows"] = [{"label": name, "width": name} for name in ("wide", "tuned")]
    (folder / "artifacts.yaml").write_text(as_yaml(artifacts))
    (folder / "reference" / "table1.csv").unlink()
    (folder / "claims.yaml").unlink()
    (folder / "scales" / "laptop.yaml").write_text('runs: {"*": {seeds: 2}}')
    digest_once.cache_clear()
    places = {name: str(small_checkout / name) for name in ("runs", "results", "data")}
    return load_catalog(small_checkout, **{f"{name}_root": at for name, at in places.items()})


def train(catalog, run, bits=""):
    """Leave weights and the record of a training."""
    run.folder.mkdir(parents=True, exist_ok=True)
    run.weights.write_text(f"{run.name} {run.seed} {bits}")
    facts = PLACE | ({"initial_sha256": sha256(run.source.weights)} if run.source else {})
    return complete(catalog.training_node(run), {"sha256": sha256(run.weights), "facts": facts})


def measure(catalog, measurement, number=90.0):
    """Leave the record of a measurement."""
    node, run = catalog.measurement_node(measurement), measurement.run
    values = {"top1": number, "parameters": 13002}
    weights = {"weights": sha256(run.weights)} if run else {}
    return complete(node, {"values": values, "code": node.code, **weights, "provenance": PLACE})


def draw(catalog):
    """Render the table, and leave the record of it."""
    node = catalog.rendering_node(catalog.paper("template").artifacts["table1"])
    measured = read_measured(node.artifact)
    files = render(node.artifact, node.output.parent, measured)
    inputs = {str(path): values["sha256"] for path, values in measured.items()}
    return complete(
        node, {"inputs": inputs, "outputs": {file.name: sha256(file) for file in files}}
    )


@pytest.fixture
def made(catalog):
    """The table, and all records behind it; the catalogue."""
    for name in ("wide", "tuned"):
        for run in catalog.paper("template").runs(name):
            train(catalog, run)
    for measurement in catalog.measurements.values():
        measure(catalog, measurement)
    draw(catalog)
    return catalog


def fault(catalog, output=None):
    """What is wrong with a record, by default that of the table."""
    digest_once.cache_clear()
    (table,) = catalog.renderings
    return ledger_of(catalog).fault(output or table)


def run_of(catalog, name, seed=0):
    return catalog.paper("template").runs(name)[seed]


def accuracy(catalog, name="wide", seed=0):
    return catalog.paper("template").measurements("accuracy", name)[seed]


def test_nothing_is_wrong_with_what_was_made_as_planned(made):
    ledger = ledger_of(made)
    for output in (*made.runs, *made.measurements, *made.renderings):
        assert ledger.fault(output) is None


def test_nothing_is_wrong_with_what_was_not_made(catalog):
    assert fault(catalog) is None
    assert fault(catalog, accuracy(catalog).path) is None


def test_the_records_behind_a_table_come_after_their_inputs(made):
    (table,) = made.renderings
    behind = ledger_of(made).behind(table)
    assert set(behind) == {*made.runs, *made.measurements, table}
    assert [*behind][-1] == table
    order = [*behind]
    for output, record in behind.items():
        inputs = [path for path in record.node.inputs if path in behind]
        assert all(order.index(path) < order.index(output) for path in inputs)


@pytest.mark.parametrize("alter", ["exchange", "delete"])
def test_altered_weights_are_a_fault_of_all_that_rests_on_them(made, alter):
    source = run_of(made, "wide", 1)
    weights = source.weights
    weights.unlink() if alter == "delete" else weights.write_text("others")
    found = fault(made)
    assert str(weights) in found.what
    assert found.output == source.record
    assert found.remove == (source.folder,)
    for above in (accuracy(made, seed=1).path, run_of(made, "tuned", 1).record):
        assert fault(made, above) == found
    for beside in (accuracy(made).path, *(run_of(made, name).record for name in ("wide", "tuned"))):
        assert fault(made, beside) is None


def test_a_source_that_was_trained_again_is_a_fault_of_its_fine_tuning(made):
    source, tuned = run_of(made, "wide"), run_of(made, "tuned")
    train(made, source, bits="others")
    assert fault(made, source.record) is None
    assert fault(made, tuned.record).output == tuned.record
    assert f"other weights than {source.record} names" in fault(made, tuned.record).what
    assert fault(made, run_of(made, "tuned", 1).record) is None
    assert fault(made, accuracy(made).path).output == accuracy(made).path


def test_a_published_source_that_has_other_weights_is_a_fault_of_its_fine_tuning(made):
    """Its own weights are gone, as those of a restored record are."""
    source, tuned = run_of(made, "wide"), run_of(made, "tuned")
    train(made, source, bits="others")
    source.weights.unlink()
    published = {source.record: read_record(source.record)}
    ledger = Ledger(partial(planned_node, made), lambda: published)
    assert ledger.fault(source.record) is None
    assert f"other weights than {source.record} names" in ledger.fault(tuned.record).what


def test_a_measurement_of_weights_that_no_record_names_is_a_fault(made):
    run_of(made, "tuned", 1).record.unlink()
    measured = accuracy(made, "tuned", 1).path
    assert fault(made, measured).output == measured
    assert fault(made).output == measured


@pytest.mark.parametrize("suffix", [".csv", ".md"])
@pytest.mark.parametrize("alter", ["edit", "delete"])
def test_an_altered_rendered_file_is_a_fault(made, suffix, alter):
    (table,) = made.renderings
    file = table.with_suffix(suffix)
    file.unlink() if alter == "delete" else file.write_text(file.read_text() + " ")
    found = fault(made)
    assert (found.output, found.remove) == (table, ())
    assert file.name in found.what


def test_a_table_of_other_numbers_than_its_measurement_has_is_a_fault(made):
    measure(made, accuracy(made), number=27.0)
    (table,) = made.renderings
    assert fault(made).output == table
    assert str(accuracy(made).path) in fault(made).what
    draw(made)
    assert fault(made) is None


CHANGES = [
    {"args": {"images": 1}},
    {"seed": 7},
    {"device": "cuda"},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_a_measurement_of_another_node_with_an_identity_of_its_own_is_a_fault(made, change):
    """As after a node was edited together with its identity, and run."""
    path = accuracy(made).path
    record = read_record(path)
    other = record.node.measurement.model_copy(update=change)
    complete(record.node.model_copy(update={"measurement": other}), record.outcome)
    found = fault(made, path)
    assert found.output == path
    assert f"other {next(iter(change))} than" in found.what
    assert fault(made) == found


@pytest.mark.parametrize("kind", ["training", "measurement"])
def test_a_record_of_another_recipe_is_a_fault(made, kind):
    run = run_of(made, "wide")
    path = run.record if kind == "training" else accuracy(made).path
    record = read_record(path)
    optimizer = run.recipe.optimizer.model_copy(update={"lr": 0.5})
    other = run.model_copy(
        update={"recipe": run.recipe.model_copy(update={"optimizer": optimizer})}
    )
    if kind == "training":
        changed = record.node.model_copy(update={"run": other})
    else:
        measured = record.node.measurement.model_copy(update={"run": other})
        changed = record.node.model_copy(update={"measurement": measured})
    complete(changed, record.outcome)
    assert fault(made, path).output == path
    assert "other recipe" in fault(made, path).what


FIELDS = {
    "args": ('"args": {', '"args": {"images": 1, '),
    "seed": ('"seed": ', '"seed": 7'),
    "device": ('"device": "cpu"', '"device": "cuda"'),
    "recipe": ('"lr": ', '"lr": 1'),
    "identity": ('"identity": "', '"identity": "0'),
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_record_whose_node_was_edited_by_hand_is_refused(made, field):
    path = accuracy(made).path
    old, new = FIELDS[field]
    text = path.read_text()
    assert old in text
    edited = text.replace(old, new, 1)
    if field == "args":
        edited = edited.replace('"images": 1, }', '"images": 1}')
    path.write_text(edited)
    for read in (read_record, read_measurement):
        with pytest.raises(VitrailError) as refused:
            read(path)
        assert str(path) in str(refused.value)
        assert len(str(refused.value).splitlines()) == 1
    assert fault(made).output == path


def test_a_measurement_by_other_code_is_a_fault(made):
    path = accuracy(made).path
    record = read_record(path)
    complete(record.node, {**record.outcome, "code": "fedcba9876543210"})
    assert fault(made, path).output == path
    assert "other code" in fault(made, path).what


def test_a_training_by_other_code_is_none(made):
    path = run_of(made, "wide").record
    record = read_record(path)
    complete(record.node.model_copy(update={"code": "fedcba9876543210"}), record.outcome)
    assert fault(made, path) is None


@pytest.mark.parametrize("name", ["sha256", "facts"])
def test_a_record_whose_outcome_is_not_whole_is_refused(made, name):
    path = run_of(made, "wide").record
    content = json.loads(path.read_text())
    for damaged in (None, [], 7):
        with pytest.raises(VitrailError, match=name):
            parse_record({**content, name: damaged}, "here")
    assert parse_record(content, "here") == read_record(path)


def test_a_record_that_must_be_there_is_asked_for(catalog):
    path = accuracy(catalog).path
    assert read_record(path) is None
    with pytest.raises(VitrailError, match="does not exist: run snakemake"):
        require_record(path)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"node": 1}', '{"node": ', "[" * 100_000])
def test_a_file_that_is_no_record_is_one_sentence(tmp_path, content):
    path = tmp_path / "accuracy.json"
    path.write_text(content)
    with pytest.raises(VitrailError) as refused:
        read_record(path)
    assert str(path) in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_the_digest_of_a_record_is_that_of_its_file(made):
    for path in (run_of(made, "wide").record, accuracy(made).path, *made.renderings):
        assert read_record(path).sha256 == sha256(path)


def test_a_field_that_nodes_did_not_have_yet_changes_no_record(made):
    """A new optional field must not make every table that rests on older records due."""
    path = accuracy(made).path
    content = json.loads(path.read_text())
    del content["node"]["config"], content["node"]["resources"]["runtime"]
    path.write_text(json.dumps(content, indent=1) + "\n")
    assert read_record(path).sha256 == sha256(path)
    draw(made)
    assert fault(made) is None


def test_the_commits_of_a_record_are_those_of_its_attempts(made):
    record = read_record(run_of(made, "wide").record)
    facts = {**PLACE, "commit": "b" * 40 + "+" + "c" * 40 + "-dirty"}
    again = complete(record.node, {**record.outcome, "facts": facts})
    assert record.commits == ("a" * 40,)
    assert again.commits == ("b" * 40, "c" * 40 + "-dirty")
    silent = complete(record.node, {**record.outcome, "facts": {}})
    assert silent.commits == ("",)


def test_a_remedy_deletes_what_is_wrong_and_makes_the_record_again(made):
    source = run_of(made, "wide", 1)
    source.weights.write_text("others")
    found = fault(made)
    told, _, commands = found.remedy("template_table1", made.snakemake).rpartition(": ")
    assert told == found.what
    delete, again = (shlex.split(command) for command in commands.split(" && "))
    assert delete == ["rm", "-r", str(source.folder)]
    asked = ["snakemake", "template_table1", "--forcerun", str(source.record)]
    roots = [f"{name}={getattr(made.settings, name)}" for name in ROOTS]
    assert again == [*asked, "--config", "scale=laptop", *roots]


@pytest.mark.parametrize("paper", ["shift", "octic"])
def test_every_node_of_the_papers_equals_itself_read_back_from_its_file(root, tmp_path, paper):
    catalog = load_catalog(root, scale="laptop", runs_root=str(tmp_path))
    for artifact in catalog.paper(paper).artifacts.values():
        for path in (catalog.rendering(artifact), *artifact.records):
            node = catalog.node(path)
            again = parse_node(json.loads(json.dumps(node.content())), str(path))
            assert again.plain == node.plain


def published_start(catalog):
    """The planned training of a run that starts from published weights, and its record."""
    run = run_of(catalog, "wide")
    node = catalog.training_node(run)
    file = catalog.data_root / "weights" / "published.safetensors"
    file.parent.mkdir(parents=True)
    file.write_text("published")
    return node.model_copy(update={"published": file}), file


def test_a_training_from_other_published_weights_than_are_here_is_named(made):
    node, file = published_start(made)
    outcome = read_record(node.output).outcome
    facts = outcome["facts"] | {"initial_sha256": sha256(file)}
    complete(node, {**outcome, "facts": facts})

    def fault():
        digest_once.cache_clear()
        return Ledger({node.output: node}.get).fault(node.output)

    assert fault() is None
    file.write_text("others")
    assert f"was trained from other weights than {file} holds" in fault().what
    assert fault().remove == (node.run.folder,)
