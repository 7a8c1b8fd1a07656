"""A measurement says what it was taken on, or in one sentence why it cannot be taken."""

import hashlib
import json
from dataclasses import replace

import pytest

from vitrine.errors import VitrineError
from vitrine.measures import taking
from vitrine.measures.context import Context, Described, Trained
from vitrine.measures.taking import subject, take
from vitrine.plan.catalog import load_catalog
from vitrine.plan.functions import import_function
from vitrine.plan.recipe import SegmentationRecipe
from vitrine.training.model import build_model, save_weights


@pytest.fixture
def trained(root, tmp_path):
    """A measurement on a run whose seed 0 has weights and a receipt, and the catalogue."""
    catalog = load_catalog(root, runs_root=str(tmp_path), scale="smoke")
    measurement = catalog.paper("variance").measurement("accuracy", "vit_s-mixup0.0-cutmix0.0")
    run = measurement.run
    write_weights(run, 0)
    digest = hashlib.sha256(weights_of(run).read_bytes()).hexdigest()
    run.receipts[0].write_text(json.dumps({"sha256": {"0": digest}}))
    return measurement, catalog


def weights_of(run):
    return run.seed_folder(0) / "weights.safetensors"


def write_weights(run, seed):
    """Initial weights of the run's model that name `seed`, in the folder of seed 0."""
    save_weights(
        build_model(run.recipe, run.info.classes).state_dict(), weights_of(run), run.recipe, seed
    )


def test_weights_are_measured_if_they_are_those_of_the_receipt(trained):
    measurement, catalog = trained
    assert subject(measurement, catalog, 0).seed == 0
    write_weights(measurement.run, 0)  # other initial weights
    with pytest.raises(VitrineError, match=r"has not the SHA-256 .* to train seed 0 again") as told:
        subject(measurement, catalog, 0)
    for path in (weights_of(measurement.run), measurement.run.receipts[0]):
        assert str(path) in str(told.value)


def test_the_measure_of_a_run_is_told_the_folder_of_its_seed(trained):
    measurement, catalog = trained
    assert subject(measurement, catalog, 0).folder == measurement.run.seed_folder(0)


def test_weights_without_a_receipt_are_measured_as_a_rehearsal_leaves_none(trained):
    measurement, catalog = trained
    measurement.run.receipts[0].unlink()
    write_weights(measurement.run, 0)
    assert subject(measurement, catalog, 0).seed == 0


def test_a_measure_of_trained_models_is_not_given_a_recipe(trained):
    measurement, catalog = trained
    described = replace(measurement, run=None, described=measurement.run)
    with pytest.raises(VitrineError, match=r"takes a Trained and .* gives it a Described: write"):
        take(described, catalog)


def test_a_measure_of_segmenters_is_not_given_a_classifier(trained, monkeypatch):
    def measure(trained: "Trained[SegmentationRecipe]"):
        return {}

    monkeypatch.setattr(taking, "import_function", lambda *_: measure)
    with pytest.raises(
        VitrineError, match=r"measures a SegmentationRecipe and .* on a Recipe: correct"
    ):
        take(*trained)


def test_weights_of_another_seed_are_refused(trained):
    measurement, catalog = trained
    measurement.run.receipts[0].unlink()
    write_weights(measurement.run, 1)
    with pytest.raises(VitrineError, match="holds weights of seed 1, not of seed 0; delete"):
        subject(measurement, catalog, 0)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"sha256": {"1": "ab"}}'])
def test_a_receipt_that_does_not_name_the_seeds_weights_is_refused(trained, content):
    measurement, catalog = trained
    measurement.run.receipts[0].write_text(content)
    with pytest.raises(VitrineError, match="does not say which weights seed 0"):
        subject(measurement, catalog, 0)


def test_a_measurement_is_of_the_commit_at_which_it_began(root, tmp_path, monkeypatch):
    def measure(context, **args):
        monkeypatch.setattr("vitrine.provenance.commit", lambda: "b2")
        return {}

    monkeypatch.setattr("vitrine.provenance.commit", lambda: "a1")
    monkeypatch.setattr(taking, "import_function", lambda *_: measure)
    catalog = load_catalog(root, runs_root=str(tmp_path), scale="smoke")
    taken = take(catalog.paper("variance").measurement("upsampling", None), catalog)
    assert taken["provenance"]["commit"] == "a1"


def test_a_measurement_says_what_it_was_taken_on(root, tmp_path, monkeypatch):
    catalog = load_catalog(root, runs_root=str(tmp_path), scale="smoke")
    measurement = catalog.paper("variance").measurement("upsampling", None)
    taken = take(measurement, catalog)
    assert list(taken["values"]) == ["0"]
    assert taken["args"] == measurement.args
    assert taken["provenance"]["wall_seconds"] >= 0
    json.dumps(taken, allow_nan=False)


def test_a_measure_of_a_recipe_gets_it_untrained_and_says_which(small_checkout, monkeypatch):
    def measure(described, **args):
        assert isinstance(described, Described)
        assert not isinstance(described, Trained)
        return {"width": described.recipe.model.args["width"], "classes": described.info.classes}

    monkeypatch.setattr(taking, "import_function", lambda *_: measure)
    catalog = load_catalog(small_checkout)
    measurement = catalog.paper("template").measurement("parameters", "wide")
    taken = take(measurement, catalog)
    assert taken["values"] == {"0": {"width": 64, "classes": 10}}
    assert taken["recipe"] == "wide"
    assert taken["recipe_hash"] == measurement.described.recipe.hash
    assert taken["dataset"] is None


def test_every_measure_of_every_paper_can_be_imported(root):
    for scale in ("laptop", "full"):
        for measurement in load_catalog(root, scale=scale).measurements.values():
            assert callable(import_function(measurement.function, "artifacts.yaml"))


def test_an_untrained_run_is_one_sentence(root, tmp_path):
    catalog = load_catalog(root, runs_root=str(tmp_path))
    measurement = catalog.paper("variance").measurement("accuracy", "vit_s-mixup0.0-cutmix0.0")
    with pytest.raises(VitrineError, match=r"weights\.safetensors does not exist"):
        take(measurement, catalog)


def test_a_gpus_measurement_is_refused_without_one(root, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    catalog = load_catalog(root, runs_root=str(tmp_path), scale="full")
    measurement = catalog.paper("variance").measurement("accuracy", "vit_s-mixup0.0-cutmix0.0")
    with pytest.raises(VitrineError, match="this machine has none; choose another scale"):
        take(measurement, catalog)


def test_a_context_is_plain_data():
    context = Context("cpu", "data", 3)
    assert (context.device, context.seed, context.workers) == ("cpu", 3, 0)
