"""A measurement says what it was taken on, or in one sentence why it cannot be taken."""

import json
import sys

import pytest
from replication.plan.jobs import read_job

from replication import __main__ as command
from replication import taking
from replication.engine.model import save_weights
from replication.plan.catalog import load_catalog
from replication.plan.code import measuring_digest
from replication.plan.recipe import SegmentationRecipe
from replication.taking import subject, take
from vitrail.errors import VitrailError
from vitrail.factory import build_model
from vitrail.files import sha256
from vitrail.measures.context import Context, Described, Trained
from vitrail.naming import import_function


@pytest.fixture
def trained(root, tmp_path):
    """A job that measures a run whose seed 0 has weights and a receipt."""
    job = job_of(root, tmp_path, "accuracy", "vit_s-mixup0.0-cutmix0.0")
    write_weights(job, 0)
    receipt_of(job).write_text(json.dumps({"sha256": {"0": sha256(job.run.weights(0))}}))
    return job


def job_of(root, runs, measure, recipe=None, scale="smoke"):
    catalog = load_catalog(root, runs_root=str(runs), scale=scale)
    return catalog.measurement_job(catalog.paper("variance").measurement(measure, recipe))


def receipt_of(job):
    return job.run.receipts[0]


def write_weights(job, seed):
    """Initial weights of the run's model that name `seed`, in the folder of seed 0."""
    weights = build_model(job.recipe, job.dataset.classes).state_dict()
    save_weights(weights, job.run.weights(0), job.recipe, seed)


def test_weights_are_measured_if_they_are_those_of_the_receipt(trained):
    assert subject(trained, 0).seed == 0
    write_weights(trained, 0)  # other initial weights
    with pytest.raises(VitrailError, match=r"has not the SHA-256 .* to train seed 0 again") as told:
        subject(trained, 0)
    for path in (trained.run.weights(0), receipt_of(trained)):
        assert str(path) in str(told.value)


def test_the_measure_of_a_run_is_told_the_folder_of_its_seed(trained):
    assert subject(trained, 0).folder == trained.run.seed_folder(0)


def test_weights_without_a_receipt_are_measured(trained):
    receipt_of(trained).unlink()
    write_weights(trained, 0)
    assert subject(trained, 0).seed == 0


def test_a_measure_of_trained_models_is_not_given_a_recipe(trained):
    described = trained.model_copy(update={"run": None})
    with pytest.raises(VitrailError, match=r"takes a Trained and .* gives it a Described: write"):
        take(described)


def test_a_measure_of_segmenters_is_not_given_a_classifier(trained, monkeypatch):
    def measure(trained: "Trained[SegmentationRecipe]"):
        return {}

    monkeypatch.setattr(taking, "import_function", lambda *_: measure)
    with pytest.raises(
        VitrailError, match=r"measures a SegmentationRecipe and .* on a Recipe: correct"
    ):
        take(trained)


def test_weights_of_another_seed_are_refused(trained):
    receipt_of(trained).unlink()
    write_weights(trained, 1)
    with pytest.raises(VitrailError, match="holds weights of seed 1, not of seed 0; delete"):
        subject(trained, 0)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"sha256": {"x": "ab"}}'])
def test_a_damaged_receipt_is_refused(trained, content):
    receipt_of(trained).write_text(content)
    with pytest.raises(VitrailError, match="does not say which weights were trained"):
        subject(trained, 0)


def test_a_receipt_of_another_seed_vouches_for_nothing(trained):
    receipt_of(trained).write_text('{"sha256": {"1": "ab"}}')
    with pytest.raises(VitrailError, match="has not the SHA-256 of the weights"):
        subject(trained, 0)


def test_a_measurement_is_of_the_commit_and_the_code_at_which_it_began(root, tmp_path, monkeypatch):
    def measure(context, **args):
        monkeypatch.setattr("vitrail.provenance.commit", lambda: "b2")
        monkeypatch.setattr(taking, "measuring_digest", lambda *_: "later")
        return {}

    monkeypatch.setattr("vitrail.provenance.commit", lambda: "a1")
    monkeypatch.setattr(taking, "measuring_digest", lambda *_: "earlier")
    monkeypatch.setattr(taking, "import_function", lambda *_: measure)
    taken = take(job_of(root, tmp_path, "upsampling"))
    assert (taken["provenance"]["commit"], taken["code"]) == ("a1", "earlier")


def test_a_measurement_says_what_it_was_taken_on(root, tmp_path):
    job = job_of(root, tmp_path, "upsampling")
    taken = take(job)
    assert list(taken["values"]) == ["0"]
    assert taken["args"] == job.args
    assert taken["identity"] == job.identity
    assert taken["weights"] == {}
    assert taken["provenance"]["wall_seconds"] >= 0
    json.dumps(taken, allow_nan=False)


def test_a_measurement_names_code_and_weights_by_their_digests(trained, monkeypatch):
    monkeypatch.setattr(taking, "import_function", lambda *_: lambda given, **args: {})
    taken = take(trained)
    assert taken["weights"] == {"0": sha256(trained.run.weights(0))}
    assert taken["code"] == measuring_digest(
        trained.function, trained.args, trained.recipe, [trained.dataset]
    )


def test_a_measurement_is_repeated_from_its_file_alone(trained, monkeypatch, capsys):
    """From another folder, without the YAML: the job's file says all."""
    monkeypatch.chdir(trained.run.folder.parent)
    monkeypatch.setattr(sys, "argv", ["vitrail", "run", str(trained.write())])
    command.main()
    taken = json.loads(trained.output.read_text())
    assert taken["values"]["0"]["images"] == 599
    assert taken["weights"] == {"0": sha256(trained.run.weights(0))}


@pytest.mark.parametrize("content", [None, "", "{}", "[1]", '{"identity": 1, "inputs": []}'])
def test_a_damaged_job_is_one_sentence(tmp_path, content):
    path = tmp_path / "job.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(VitrailError, match=r"job\.json is no job .*start snakemake again"):
        read_job(path)


def test_a_measure_of_a_recipe_gets_it_untrained_and_says_which(small_checkout, monkeypatch):
    def measure(described, **args):
        assert isinstance(described, Described)
        assert not isinstance(described, Trained)
        return {"width": described.recipe.model.args["width"], "classes": described.info.classes}

    monkeypatch.setattr(taking, "import_function", lambda *_: measure)
    catalog = load_catalog(small_checkout)
    measurement = catalog.paper("template").measurement("parameters", "wide")
    taken = take(catalog.measurement_job(measurement))
    assert taken["values"] == {"0": {"width": 64, "classes": 10}}
    assert taken["recipe"] == "wide"
    assert taken["recipe_hash"] == measurement.described.recipe.hash
    assert taken["dataset"] is None


def test_every_measure_of_every_paper_can_be_imported(root):
    for scale in ("laptop", "full"):
        for measurement in load_catalog(root, scale=scale).measurements.values():
            assert callable(import_function(measurement.function, "artifacts.yaml"))


def test_an_untrained_run_is_one_sentence(root, tmp_path):
    job = job_of(root, tmp_path, "accuracy", "vit_s-mixup0.0-cutmix0.0", scale="laptop")
    with pytest.raises(VitrailError, match=r"weights\.safetensors does not exist"):
        take(job)


def test_a_gpus_measurement_is_refused_without_one(root, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    job = job_of(root, tmp_path, "accuracy", "vit_s-mixup0.0-cutmix0.0", scale="full")
    with pytest.raises(VitrailError, match="this machine has none; choose another scale"):
        take(job)


def test_a_context_is_plain_data():
    context = Context("cpu", "data", 3)
    assert (context.device, context.seed, context.workers) == ("cpu", 3, 0)
