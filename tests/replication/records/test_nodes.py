"""A node's identity is that of its own fields: what was edited by hand is refused."""

import json

import pytest

from replication.config.schema import as_yaml, merge, read_yaml
from replication.config.settings import TrainingOptions
from replication.plan.catalog import load_catalog
from replication.records.nodes import parse_node, read_needs, read_node
from tests.conftest import catalog_of
from vitrail.errors import VitrailError

KINDS = ("training", "measurement", "rendering", "report")


@pytest.fixture
def nodes(small_checkout):
    """A node of each kind, of the template paper; the run starts from another."""
    recipes = small_checkout / "configs" / "papers" / "template" / "recipes.yaml"
    tuned = {"model": {"args": {"width": 64}, "weights_from": "wide"}}
    recipes.write_text(as_yaml(merge(read_yaml(recipes), {"axes": {"width": {"tuned": tuned}}})))
    places = {name: str(small_checkout / name) for name in ("runs", "results")}
    catalog = load_catalog(small_checkout, runs_root=places["runs"], results_root=places["results"])
    paper = catalog.paper("template")
    run = paper.run("tuned")
    return {
        "training": catalog.training_node(run),
        "measurement": catalog.measurement_node(paper.measurement("accuracy", "tuned")),
        "rendering": catalog.rendering_node(paper.artifacts["table1"]),
        "report": catalog.report_node,
    }


def edited(node, *place, value):
    """A node's content with another value at a place, as if its file was edited."""
    content = json.loads(json.dumps(node.content()))
    inner = content
    for key in place[:-1]:
        inner = inner[key]
    assert inner[place[-1]] != value
    inner[place[-1]] = value
    return content


@pytest.mark.parametrize("kind", KINDS)
def test_a_node_comes_back_from_its_file_as_it_was(nodes, kind):
    node = nodes[kind]
    path = node.write()
    assert path == node.path
    assert read_node(path) == node
    assert read_node(path).identity == node.identity


def test_the_nodes_of_a_scale_have_files_of_their_own(nodes):
    places = {node.path for node in nodes.values()} | {node.output for node in nodes.values()}
    assert len(places) == 2 * len(nodes)


def test_a_node_that_says_the_same_is_not_written_again(nodes):
    path = nodes["training"].write()
    before = path.stat().st_mtime_ns
    nodes["training"].write()
    assert path.stat().st_mtime_ns == before
    nodes["training"].model_copy(update={"options": TrainingOptions(workers=7)}).write()
    assert read_node(path).options.workers == 7


DECISIVE = [
    ("training", ("run", "recipe", "optimizer", "lr"), 0.5),
    ("training", ("run", "recipe", "schedule", "epochs"), 77),
    ("training", ("run", "seed"), 7),
    ("training", ("run", "source", "dataset", "mean"), [5.0, 5.0, 5.0]),
    ("training", ("run", "dataset", "mean"), [5.0, 5.0, 5.0]),
    ("measurement", ("measurement", "name"), "other"),
    ("measurement", ("measurement", "args"), {"images": 1}),
    ("measurement", ("measurement", "seed"), 7),
    ("measurement", ("measurement", "device"), "cuda"),
    ("measurement", ("measurement", "run", "recipe", "optimizer", "lr"), 0.5),
    ("measurement", ("measurement", "run"), None),
    ("measurement", ("measurement", "run", "source"), None),
    ("measurement", ("measurement", "run", "dataset", "mean"), [5.0, 5.0, 5.0]),
    ("measurement", ("code",), "fedcba9876543210"),
    ("rendering", ("artifact", "cells", 0, "key"), "top5"),
    ("rendering", ("artifact", "cells", 0, "records"), ["runs/another.json"]),
    ("rendering", ("artifact", "cells", 0, "digits"), 9),
    ("rendering", ("artifact", "cells", 1, "printed", "value"), 1.0),
    ("rendering", ("artifact", "caption"), "A narrower network reads digits better."),
    ("rendering", ("artifact", "measurements"), []),
    ("report", ("report",), "01234567"),
    ("report", ("renderings",), []),
]


@pytest.mark.parametrize(("kind", "place", "value"), DECISIVE)
def test_a_field_that_decides_the_result_and_was_edited_is_refused(nodes, kind, place, value):
    node = nodes[kind]
    node.path.parent.mkdir(parents=True)
    node.path.write_text(json.dumps(edited(node, *place, value=value)))
    with pytest.raises(VitrailError) as refused:
        read_node(node.path)
    assert str(node.path) in str(refused.value)
    assert "changed by hand" in str(refused.value)


@pytest.mark.parametrize(("kind", "place", "value"), DECISIVE)
def test_a_field_that_decides_the_result_changes_the_identity(nodes, kind, place, value):
    content = edited(nodes[kind], *place, value=value)
    fields = {name: content[name] for name in content if name not in ("format", "identity")}
    assert type(nodes[kind]).model_validate(fields).identity != nodes[kind].identity


@pytest.mark.parametrize(
    ("kind", "place", "value"),
    [
        ("training", ("options", "workers"), 7),
        ("training", ("data_root",), "/elsewhere"),
        ("training", ("options", "checkpoint_minutes"), 1.0),
        ("training", ("commit",), "0" * 40),
        ("training", ("code",), "fedcba9876543210"),
        ("training", ("resources", "threads"), 7),
        ("measurement", ("workers",), 7),
        ("measurement", ("data_root",), "/elsewhere"),
        ("rendering", ("commit",), "0" * 40),
    ],
)
def test_where_and_with_what_a_job_runs_changes_no_identity(nodes, kind, place, value):
    content = edited(nodes[kind], *place, value=value)
    assert parse_node(content, "here").identity == nodes[kind].identity


def test_an_identity_that_was_edited_is_refused(nodes):
    for node in nodes.values():
        with pytest.raises(VitrailError, match="changed by hand"):
            parse_node(edited(node, "identity", value="01234567"), "here")
        content = node.content()
        del content["identity"]
        with pytest.raises(VitrailError, match="changed by hand"):
            parse_node(content, "here")


def test_a_node_of_an_older_format_is_read_with_the_identity_that_it_has_now(nodes):
    """Its own was of other fields."""
    for node in nodes.values():
        content = edited(node, "identity", value="01234567")
        del content["format"]
        assert parse_node(content, "here") == node


def test_a_measurement_is_known_by_its_measure_and_not_by_the_function(nodes):
    node = nodes["measurement"]

    def changed(**update):
        own = node.measurement.model_copy(update=update)
        return node.model_copy(update={"measurement": own})

    assert changed(function="vitrail.elsewhere:other").identity == node.identity
    for other in ({"name": "other"}, {"paper": "other"}):
        assert changed(**other).identity != node.identity


@pytest.mark.parametrize(
    ("kind", "place", "value"),
    [
        ("measurement", ("measurement", "args"), {"images": 1}),
        ("training", ("run", "seed"), 7),
        ("rendering", ("artifact", "caption"), "Another."),
    ],
)
def test_a_job_whose_node_was_edited_does_not_start(
    nodes, vitrail, small_checkout, monkeypatch, kind, place, value
):
    monkeypatch.chdir(small_checkout)
    node = nodes[kind]
    node.path.parent.mkdir(parents=True)
    node.path.write_text(json.dumps(edited(node, *place, value=value)))
    done = vitrail("run", node.path)
    assert done.code == 2
    assert done.err.startswith(f"vitrail: {node.path} was changed by hand")
    assert len(done.err.splitlines()) == 1
    assert not node.output.exists()


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[]", "[1]", '{"kind": "training"}', '{"kind": ["training"]}', "[" * 100_000],
)
def test_a_file_that_is_no_node_is_one_sentence(tmp_path, content):
    path = tmp_path / "node.json"
    path.write_text(content)
    for read in (read_node, read_needs):
        with pytest.raises(VitrailError, match=r"node\.json") as refused:
            read(path)
        assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("kind", ["training", "measurement"])
def test_a_node_without_a_seed_is_refused_also_where_its_identity_is_right(nodes, kind):
    content = nodes[kind].content()
    of = {"training": "run", "measurement": "measurement"}[kind]
    content[of]["seed"] = None
    with pytest.raises(VitrailError, match=rf"here: '{of}.seed' is .*; delete it and start snake"):
        parse_node(content, "here")


def test_an_unknown_field_is_refused(nodes):
    content = nodes["measurement"].content() | {"argz": {}}
    with pytest.raises(VitrailError, match=r"'argz'; .*delete it and start snakemake again"):
        parse_node(content, "here")
    content = edited(nodes["training"], "run", "recipe", "model", value={"name": "x", "sha": "0"})
    with pytest.raises(VitrailError, match=r"'run\.recipe.*\.model\.sha'.*; delete it and"):
        parse_node(content, "here")


def test_a_segmenters_configuration_that_was_edited_is_refused(root):
    catalog = catalog_of("laptop")
    run = catalog.paper("shift").run("a_swin_upernet-ade20k-circular")
    node = catalog.training_node(run)
    files = node.run.recipe.model.files
    assert len(files) == 2
    for name, code in files.items():
        place = ("run", "recipe", "model", "files", name)
        with pytest.raises(VitrailError, match="changed by hand"):
            parse_node(edited(node, *place, value=f"{code}\nx = 1"), "here")


def test_the_rules_read_inputs_identity_and_resources(nodes):
    node = nodes["measurement"]
    assert not node.path.exists()
    needs = node.needs
    assert not node.path.exists()
    assert needs == read_needs(node.write())
    assert needs == {
        "node": str(node.path),
        "inputs": [str(path) for path in node.inputs],
        "identity": node.identity,
        "code": node.code,
        **node.resources.model_dump(),
    }
