"""A measurement says what it was taken on, or in one sentence why it cannot be taken."""

import json
import shutil

import pytest

from replication.config.functions import import_function
from replication.config.recipe import TimmTraining
from replication.config.recipes.segmentation import SegmentationRecipe
from replication.config.recipes.self_supervision import SelfSupervisionRecipe
from replication.context import Context, Described, Trained
from replication.jobs import measure as taking
from replication.jobs.measure import subject, take
from replication.measures.resume import kept_path
from replication.plan.catalog import load_catalog
from replication.plan.code_digest import Code, measurement_code
from replication.records.nodes import read_node
from replication.records.records import complete, read_record
from replication.training.model_factory import build_model
from replication.training.weights import save_weights
from tests.conftest import catalog_of
from vitrail.errors import VitrailError
from vitrail.files import sha256


@pytest.fixture
def catalog(root, tmp_path):
    """The catalogue at laptop scale, its runs in a folder of the test."""
    return load_catalog(root, runs_root=str(tmp_path / "runs"), scale="laptop")


@pytest.fixture
def trained(catalog):
    """A node that measures a run that has weights and a record of its training."""
    run = catalog.paper("variance").run("vit_s-mixup0.0-cutmix0.0")
    node = catalog.measurement_node(catalog.paper("variance").measurement("accuracy", run.name))
    write_weights(node, run.seed)
    complete(catalog.training_node(run), {"sha256": sha256(run.weights), "facts": {}})
    return node


def node_of(catalog, measure, recipe=None):
    return catalog.measurement_node(catalog.paper("variance").measurement(measure, recipe))


def record_of(node):
    """The record of the training that a measurement's node reads."""
    return node.measurement.run.record


def write_weights(node, seed):
    """Initial weights of the run's model that name `seed`, in the folder of the run."""
    run = node.measurement.run
    weights = build_model(run.recipe, run.dataset.classes).state_dict()
    save_weights(weights, run.weights, run.recipe, seed)


def test_weights_are_measured_if_they_are_those_of_the_record(trained):
    seed = trained.measurement.seed
    assert subject(trained).seed == seed
    write_weights(trained, seed)  # other initial weights
    with pytest.raises(VitrailError, match=rf"has not the SHA-256 .* seed {seed} again") as told:
        subject(trained)
    for path in (trained.measurement.run.weights, record_of(trained)):
        assert str(path) in str(told.value)


def test_the_measure_of_a_run_is_told_the_folder_of_its_seed(trained):
    assert subject(trained).folder == trained.measurement.run.folder


def test_the_measure_of_a_run_is_told_the_facts_of_its_seed(trained):
    record = read_record(record_of(trained))
    facts = {"wall_seconds": 30.5, "processes": 2}
    complete(record.node, {**record.outcome, "facts": facts})
    assert subject(trained).facts == facts


def test_weights_without_a_record_are_not_measured(trained):
    record_of(trained).unlink()
    with pytest.raises(VitrailError, match="does not exist"):
        subject(trained)


def test_a_measure_of_trained_models_is_not_given_a_recipe(trained):
    own = trained.measurement
    own = own.model_copy(update={"run": None, "described": own.run})
    described = trained.model_copy(update={"measurement": own})
    with pytest.raises(VitrailError, match=r"takes a Trained and .* gives it a Described: write"):
        take(described)


def test_a_measure_of_segmenters_is_not_given_a_classifier(trained, monkeypatch):
    def measure(trained: "Trained[SegmentationRecipe]"):
        return {}

    monkeypatch.setattr(taking, "import_function", lambda *_: measure)
    with pytest.raises(
        VitrailError, match=r"measures a SegmentationRecipe and .* on a ClassificationRecipe:"
    ):
        take(trained)


def test_a_measure_is_given_the_kind_of_recipe_that_it_names(trained, monkeypatch):
    def of_backbones(trained: "Trained[SelfSupervisionRecipe]"):
        return {}

    def of_timm(trained: "Trained[TimmTraining]"):
        return {"top1": 1.0}

    monkeypatch.setattr(taking, "import_function", lambda *_: of_backbones)
    with pytest.raises(VitrailError, match=r"measures a SelfSupervisionRecipe and .* Classific"):
        take(trained)
    monkeypatch.setattr(taking, "import_function", lambda *_: of_timm)
    assert take(trained)["values"] == {"top1": 1.0}


def test_a_measure_whose_class_is_imported_for_the_type_checker_alone_is_one_sentence(
    trained, monkeypatch
):
    def measure(trained: "Trained[Unknown]"):  # noqa: F821
        return {}

    monkeypatch.setattr(taking, "import_function", lambda *_: measure)
    with pytest.raises(VitrailError, match=r"has no 'Unknown'.*TYPE_CHECKING"):
        take(trained)


def test_weights_of_another_seed_are_refused(trained):
    record_of(trained).unlink()
    seed = trained.measurement.seed
    write_weights(trained, seed + 1)
    with pytest.raises(VitrailError, match=f"of seed {seed + 1}, not of seed {seed}; delete"):
        subject(trained)


@pytest.mark.slow
@pytest.mark.parametrize("content", ["", "{}", "[]", '{"sha256": "ab"}'])
def test_a_damaged_record_is_refused(trained, content):
    record_of(trained).write_text(content)
    with pytest.raises(VitrailError, match=r"trained-seed\d+\.json.*--forcerun"):
        subject(trained)


@pytest.mark.parametrize("change", [{"sha256": {}}, {"sha256": "ab"}, {"facts": []}])
def test_a_record_that_does_not_name_the_weights_of_its_seeds_is_refused(trained, change):
    path = record_of(trained)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(VitrailError, match=r"trained-seed\d+\.json.*--forcerun"):
        subject(trained)


def test_a_measurement_is_of_the_commit_of_its_node_and_the_code_at_which_it_began(
    catalog, monkeypatch
):
    def measure(context, **args):
        monkeypatch.setattr(taking, "measurement_code", lambda *_: Code(("later",)))
        return {}

    monkeypatch.setattr("vitrail.provenance.commit", lambda: "b2")
    monkeypatch.setattr(taking, "measurement_code", lambda *_: Code(("earlier",)))
    monkeypatch.setattr(taking, "import_function", lambda *_: measure)
    taken = take(node_of(catalog, "upsampling").model_copy(update={"commit": "a1"}))
    assert (taken["provenance"]["commit"], taken["code"]) == ("a1", Code(("earlier",)).digest)


def test_a_measurement_says_what_it_was_taken_on(catalog):
    taken = take(node_of(catalog, "upsampling"))
    assert "bicubic 224-448/k2D" in taken["values"]
    assert "weights" not in taken
    assert taken["provenance"]["wall_seconds"] >= 0
    json.dumps(taken, allow_nan=False)


def test_a_measurement_names_code_and_weights_by_their_digests(trained, monkeypatch):
    monkeypatch.setattr(taking, "import_function", lambda *_: lambda given, **args: {})
    taken = take(trained)
    assert taken["weights"] == sha256(trained.measurement.run.weights)
    assert taken["code"] == trained.code
    own = trained.measurement
    code = measurement_code(own.function, own.args, own.run.recipe, [own.run.dataset])
    assert taken["code"] == code.digest


def test_a_measurement_keeps_its_rows_beside_the_weights_by_its_code(trained, monkeypatch):
    places = []

    def measure(given, **args):
        places.append(kept_path(given, "rows"))
        return {}

    monkeypatch.setattr(taking, "import_function", lambda *_: measure)
    take(trained)
    monkeypatch.setattr(taking, "measurement_code", lambda *_: Code(("other code",)))
    take(trained)
    kept, elsewhere = places
    assert kept.is_relative_to(trained.measurement.run.folder)
    assert elsewhere != kept


def test_a_measurement_is_repeated_from_its_node_alone(trained, monkeypatch, vitrail):
    """From another folder, without the YAML: the node says all."""
    monkeypatch.chdir(trained.measurement.run.home)
    done = vitrail("run", trained.write())
    assert done.code == 0, done.err
    record = read_record(trained.output)
    assert record.node == trained
    assert record.outcome["values"]["images"] == 599
    assert record.outcome["weights"] == sha256(trained.measurement.run.weights)


def test_a_segmenter_is_the_one_of_its_node_whatever_its_configuration_says_now(
    root, tmp_path, monkeypatch, vitrail
):
    """As planned, then with its configuration changed, then without any."""
    shutil.copytree(root / "configs", tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    paper = load_catalog(scale="laptop").paper("shift")
    measurement = paper.measurement("segmentation_preprocessing", "a_swin_upernet-ade20k-circular")
    node = load_catalog(scale="laptop").measurement_node(measurement)
    base = tmp_path / "configs" / "segmentation" / "swin_t_upernet_ade20k_circular.py"
    values = []
    for change in (
        lambda: None,
        lambda: base.write_text(base.read_text().replace("(448, 448)", "(224, 224)")),
        lambda: shutil.rmtree(tmp_path / "configs"),
    ):
        change()
        node.output.unlink(missing_ok=True)
        done = vitrail("run", node.write())
        assert done.code == 0, done.err
        values.append(read_record(node.output).outcome["values"])
    assert values[0]["train/crop"] == 448
    assert values[1:] == values[:1] * 2


@pytest.mark.parametrize("content", [None, "", "{}", "[1]", '{"identity": 1, "inputs": []}'])
def test_a_damaged_node_is_one_sentence(tmp_path, content):
    path = tmp_path / "node.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(VitrailError, match=r"node\.json .*start snakemake again"):
        read_node(path)


def test_a_measure_of_a_recipe_gets_it_untrained_and_says_which(small_checkout, monkeypatch):
    def measure(described, **args):
        assert isinstance(described, Described)
        assert not isinstance(described, Trained)
        return {"width": described.recipe.model.args["width"], "classes": described.info.classes}

    monkeypatch.setattr(taking, "import_function", lambda *_: measure)
    catalog = load_catalog(small_checkout)
    node = catalog.measurement_node(catalog.paper("template").measurement("parameters", "wide"))
    assert (node.measurement.described.name, node.measurement.measured_on) == ("wide", ())
    assert take(node)["values"] == {"width": 64, "classes": 10}


def test_every_measure_of_every_paper_can_be_imported(root):
    for scale in ("laptop", "full"):
        for measurement in catalog_of(scale).measurements.values():
            assert callable(import_function(measurement.function, "artifacts.yaml"))


@pytest.mark.slow
def test_an_untrained_run_is_one_sentence(catalog):
    node = node_of(catalog, "accuracy", "vit_s-mixup0.0-cutmix0.0")
    with pytest.raises(VitrailError, match=r"weights\.safetensors does not exist"):
        take(node)


@pytest.mark.parametrize(
    ("build", "remedy"), [("13.0", "a scale for CPUs"), (None, "make install TORCH=cuda")]
)
def test_a_gpus_measurement_is_refused_without_one(catalog, monkeypatch, build, remedy):
    monkeypatch.setattr("torch.version.cuda", build)
    monkeypatch.setattr("torch.version.hip", None)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    node = node_of(catalog, "accuracy", "vit_s-mixup0.0-cutmix0.0")
    own = node.measurement.model_copy(update={"device": "cuda"})
    node = node.model_copy(update={"measurement": own})
    with pytest.raises(VitrailError, match=remedy):
        take(node)


def test_a_context_is_plain_data():
    context = Context("cpu", "data", 3)
    assert (context.device, context.seed, context.workers) == ("cpu", 3, 0)
