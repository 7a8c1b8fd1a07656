"""A training that starts from another run takes the weights that this run's record names."""

import shutil

import pytest

from replication.engine.model import save_weights
from replication.ledger import complete, read_record
from replication.plan.catalog import load_catalog
from replication.plan.schema import as_yaml, read_yaml
from replication.trained import starting_weights
from vitrail.errors import VitrailError
from vitrail.factory import build_model
from vitrail.files import sha256


@pytest.fixture
def tuned(small_checkout):
    """A run that starts from one whose seed 1 has weights and a record."""
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
    scale.write_text('runs: {"*": {seeds: 2, seeds_per_training: 1}}')
    catalog = load_catalog(
        small_checkout,
        runs_root=str(small_checkout / "runs"),
        data_root=str(small_checkout / "data"),
    )
    run = catalog.paper("template").run("tuned")
    write_weights(run.source, 1)
    digest = {"1": sha256(run.source.weights(1))}
    complete(catalog.training_node(run.source, (1,)), {"sha256": digest, "facts": {"1": {}}})
    return catalog.training_node(run, (1,)), run.source


def write_weights(run, seed, **changes):
    """Initial weights of a run's model, which name the run and the seed."""
    weights = build_model(run.recipe, run.info.classes).state_dict()
    save_weights({**weights, **changes}, run.weights(seed), run.recipe, seed)


def test_a_run_starts_from_its_sources_weights_of_the_same_seed(tuned):
    node, source = tuned
    assert starting_weights(node.start, 1) == source.weights(1)


def test_a_training_is_repeated_from_its_node_alone(tuned, small_checkout, vitrail):
    node, source = tuned
    path = node.write()
    shutil.rmtree(small_checkout / "configs")
    done = vitrail("run", path)
    assert done.code == 0, done.err
    weights = node.folder / "seed1" / "weights.safetensors"
    record = read_record(node.output)
    assert record.node == node
    assert record.outcome.keys() == {"sha256", "facts"}
    assert record.outcome["sha256"] == {"1": sha256(weights)}
    facts = record.outcome["facts"]["1"]
    assert (facts["steps"], facts["initial_sha256"]) == (0, sha256(source.weights(1)))


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
    shutil.rmtree(node.folder / "seed1")
    assert vitrail("run", path).code == 0
    assert read_record(node.output).outcome["facts"]["1"]["commit"] == "later"


def test_a_source_that_is_not_trained_is_told(tuned):
    node, _ = tuned
    with pytest.raises(VitrailError, match=r"seed0/weights\.safetensors does not exist: run"):
        starting_weights(node.start, 0)


def test_weights_of_another_recipe_are_no_start(tuned):
    node, source = tuned
    weights = build_model(source.recipe, source.info.classes).state_dict()
    save_weights(weights, source.weights(1), node.recipe, 1)
    with pytest.raises(VitrailError, match=f"of recipe {node.recipe.hash}, not of recipe"):
        starting_weights(node.start, 1)


def test_weights_that_the_sources_record_does_not_name_are_no_start(tuned):
    node, source = tuned
    write_weights(source, 1)
    with pytest.raises(VitrailError, match="has not the SHA-256 of the weights"):
        starting_weights(node.start, 1)
