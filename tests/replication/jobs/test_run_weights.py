"""A training that starts from another run takes the weights that this run's record names."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch

from replication.config.schema import as_yaml, read_yaml
from replication.jobs.run_weights import starting_weights
from replication.plan.catalog import load_catalog
from replication.records.records import complete, read_record
from replication.training.model_factory import build_model
from replication.training.weights import save_weights
from vitrail.errors import VitrailError
from vitrail.files import sha256

ROOTS = ("runs_root", "data_root")


@pytest.fixture
def tuned(small_checkout):
    """A run that starts from one whose second seed has weights and a record."""
    path = small_checkout / "configs" / "papers" / "template" / "recipes.yaml"
    recipes = read_yaml(path)
    model = {"name": "test_vit", "args": {"img_size": 8, "patch_size": 4}}
    recipes["base"]["model"] = model
    recipes["axes"]["width"] = {
        "wide": {},
        "tuned": {"model": {"weights_from": "wide"}, "schedule": {"epochs": 0}},
    }
    path.write_text(as_yaml(recipes))
    scale = path.parent / "scales" / "laptop.yaml"
    scale.write_text('runs: {"*": {seeds: 2}}')
    catalog = load_catalog(
        small_checkout,
        runs_root=str(small_checkout / "runs"),
        data_root=str(small_checkout / "data"),
    )
    run = catalog.paper("template").runs("tuned")[1]
    write_weights(run.source)
    complete(catalog.training_node(run.source), {"sha256": sha256(run.source.weights), "facts": {}})
    return catalog.training_node(run), run.source


def command_in(said):
    """The command that a sentence names, its words split."""
    return shlex.split(re.search(r"snakemake .* --forcerun \S+", said)[0])


def damaged(path):
    path.write_bytes(b"damaged")


def of_another_recipe(path):
    owner = {"run": json.dumps({"recipe_hash": "0a1b2c3d", "seed": int(path.parent.name[4:])})}
    safetensors.torch.save_file({"x": torch.zeros(1)}, path, metadata=owner)


@pytest.mark.parametrize(
    ("file", "break_it"),
    [
        ("weights", Path.unlink),
        ("weights", damaged),
        ("weights", of_another_recipe),
        ("record", Path.unlink),
        ("record", damaged),
    ],
)
def test_what_a_step_tells_to_run_has_the_settings_that_it_was_planned_with(
    tuned, vitrail, file, break_it
):
    """It makes what the step makes, and anew the record of the training that is wrong."""
    node, source = tuned
    break_it(getattr(source, file))
    done = vitrail("run", node.write())
    assert done.code == 2
    settings = {f"{name}={node.output.parents[3] / name.partition('_')[0]}" for name in ROOTS}
    command = command_in(done.err)
    assert command[:3] == ["snakemake", str(node.output), "--config"]
    assert {*command[3:-2]} == {"scale=laptop", *settings}
    assert command[-2:] == ["--forcerun", str(source.record)]


def test_a_step_whose_own_folder_is_damaged_tells_to_make_its_own_record(tuned, vitrail):
    node, _ = tuned
    assert vitrail("run", node.write()).code == 0
    node.output.unlink()
    (node.run.folder / "finished.json").write_text("damaged")
    done = vitrail("run", node.path)
    assert done.code == 2
    assert command_in(done.err)[1] == command_in(done.err)[-1] == str(node.output)


def write_weights(run, **changes):
    """Initial weights of a run's model, which name the run and the seed."""
    weights = build_model(run.recipe, run.dataset.classes).state_dict()
    save_weights({**weights, **changes}, run.weights, run.recipe, run.seed)


def test_a_run_starts_from_its_sources_weights_of_the_same_seed(tuned):
    node, source = tuned
    assert starting_weights(node.run.source) == source.weights


def test_a_training_is_repeated_from_its_node_alone(tuned, small_checkout, vitrail):
    node, source = tuned
    path = node.write()
    shutil.rmtree(small_checkout / "configs")
    done = vitrail("run", path)
    assert done.code == 0, done.err
    record = read_record(node.output)
    assert record.node == node
    assert record.outcome.keys() == {"sha256", "facts"}
    assert record.outcome["sha256"] == sha256(node.run.weights)
    facts = record.outcome["facts"]
    assert (facts["steps"], facts["initial_sha256"]) == (0, sha256(source.weights))


def test_a_record_that_is_gone_is_completed_again_without_training(tuned, vitrail):
    """Snakemake deletes a record before it starts the job that writes it."""
    node, _ = tuned
    path = node.write()
    assert vitrail("run", path).code == 0
    before = read_record(node.output).outcome
    node.output.unlink()
    node.model_copy(update={"commit": "later"}).write()
    assert vitrail("run", path).code == 0
    assert read_record(node.output).outcome == before
    shutil.rmtree(node.run.folder)
    assert vitrail("run", path).code == 0
    assert read_record(node.output).outcome["facts"]["commit"] == "later"


def test_a_source_that_is_not_trained_is_told(tuned):
    node, source = tuned
    source.weights.unlink()
    with pytest.raises(VitrailError, match=re.escape(f"{source.weights} does not exist")):
        starting_weights(node.run.source)


def test_weights_of_another_recipe_are_no_start(tuned):
    node, source = tuned
    weights = build_model(source.recipe, source.dataset.classes).state_dict()
    save_weights(weights, source.weights, node.run.recipe, source.seed)
    with pytest.raises(VitrailError, match=f"of recipe {node.run.recipe.hash}, not of recipe"):
        starting_weights(node.run.source)


def test_weights_that_the_sources_record_does_not_name_are_no_start(tuned):
    node, source = tuned
    write_weights(source)
    with pytest.raises(VitrailError, match="has not the SHA-256 of the weights"):
        starting_weights(node.run.source)
