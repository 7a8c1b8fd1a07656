"""A number depends on exactly the modules that compute it."""

import json
import subprocess
import sys

import pytest

from replication.plan import code
from replication.plan.catalog import load_catalog
from replication.plan.code import closure, digest, modules_of_measurement, registering_modules
from vitrail.errors import VitrailError

CONSISTENCIES = (
    *("circular_consistency", "standard_consistency"),
    *("cropped_consistency", "robustness"),
)


@pytest.fixture(scope="module")
def measured(root):
    """Every measurement of the four papers at laptop scale, with the modules behind it."""
    catalog = load_catalog(root)
    found = []
    for one in catalog.measurements.values():
        job = catalog.measurement_job(one)
        modules = modules_of_measurement(job.function, job.args, job.recipe, job.reads)
        found.append((one, modules))
    return found


def due(measured, module):
    """The measurements that a change of a module makes due."""
    return {one.path for one, modules in measured if module in modules}


def chosen(measured, condition):
    paths = {one.path for one, _ in measured if condition(one)}
    assert paths
    return paths


def names_adaptive(measurement):
    """Whether a model of the shift paper is measured, or named by the arguments."""
    said = json.dumps(measurement.args)
    if measurement.on:
        said += measurement.on.recipe.model.model_dump_json()
    return '"a_' in said or '"canonical_' in said


def test_selections_concern_every_consistency_of_an_adaptive_model_and_no_plain_one(measured):
    due_now = due(measured, "vitrail.shift.polyphase")
    consistency = chosen(measured, lambda one: one.name in CONSISTENCIES)
    adaptive = chosen(measured, lambda one: one.name in CONSISTENCIES and names_adaptive(one))
    assert adaptive < consistency
    assert due_now & consistency == adaptive
    assert {one.paper for one, _ in measured if one.path in due_now} == {"shift"}


def test_a_segmenter_concerns_the_selections_if_its_configuration_names_an_adaptive_type(measured):
    due_now = due(measured, "vitrail.shift.polyphase")
    segmenters = chosen(measured, lambda one: one.run and one.run.recipe.task == "segmentation")
    adaptive = chosen(
        measured,
        lambda one: (
            one.run
            and one.run.recipe.task == "segmentation"
            and one.run.recipe.model.name.startswith("a_swin")
        ),
    )
    assert adaptive <= due_now & segmenters
    plain = chosen(
        measured,
        lambda one: one.run and one.run.recipe.model.name == "swin_t_upernet_ade20k_circular",
    )
    # Their consistency is measured by code that knows the adaptive heads; their accuracy is not.
    assert not {path for path in plain if path.name.startswith("segmentation_acc")} & due_now


def test_an_embedding_concerns_every_position_shap_of_its_models(measured):
    due_now = due(measured, "vitrail.position.embeddings.rope")
    rope = chosen(
        measured,
        lambda one: (
            one.name == "position_bias"
            and one.run.recipe.model.args.get("embedding", "ape") in ("rope", "auto-rope")
        ),
    )
    assert rope <= due_now
    assert {one.paper for one, _ in measured if one.path in due_now} == {"position"}


def test_transforms_concern_every_measure_that_reads_images_and_no_count(measured):
    due_now = due(measured, "vitrail.images.transforms")
    assert due_now >= chosen(measured, lambda one: one.name in ("accuracy", *CONSISTENCIES))
    counts = ("parameters", "flops", "throughput", "memory", "cayley")
    assert not due_now & chosen(measured, lambda one: one.name in counts)


def test_the_module_that_opens_a_dataset_concerns_those_who_read_it(measured):
    due_now = due(measured, "replication.data.arrays")
    assert due_now >= chosen(measured, lambda one: one.name == "accuracy")
    scenes = due(measured, "replication.data.scenes")  # its classes are those of mmseg's type
    assert scenes >= chosen(measured, lambda one: one.name == "segmentation_accuracy")
    assert not scenes & chosen(measured, lambda one: one.name == "accuracy")


def test_every_module_concerns_some_number_or_is_not_about_numbers(measured):
    """What no measurement depends on trains, plans, renders or talks to people."""
    behind = frozenset().union(*(modules for _, modules in measured))
    others = code._graph().modules - behind
    tasks = ("segmentation", "self_supervision")
    rooms = ("plan", "training", "artifacts", "commands", *tasks, "data", "cli", "__main__")
    strange = {
        name
        for name in others
        if not any(room in name.split(".") for room in rooms)
        and not name.endswith((".figures", ".checkpoint", ".kernels", ".equivariance"))
    }
    assert strange <= {
        "vitrail",
        "replication.fork_server",
        *code.REGISTRIES,
    } | {f"vitrail.{paper}" for paper in ("shift", "octic", "position", "variance", "measures")} | {
        "vitrail.octic.models",
        "vitrail.shift.models",
    }


IMPORTED = """
import importlib, json, sys, types
for registry in ("vitrail.models",):
    sys.modules[registry] = types.ModuleType(registry)
import replication.taking
importlib.import_module(sys.argv[1])
print(json.dumps([name for name in sys.modules if name.startswith("vitrail.")]))
"""


@pytest.mark.parametrize(
    "module",
    ["vitrail.measures.consistency", "vitrail.variance.measures", "vitrail.octic.measures"],
)
def test_nothing_that_is_imported_when_it_is_measured_is_missed(module):
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, module], capture_output=True, text=True, check=True
    )
    imported = set(json.loads(done.stdout)) - set(code.REGISTRIES)
    found = closure({module, code.TAKING})
    # A package's own file runs, too, but only what is imported from it counts.
    packages = {name.rpartition(".")[0] for name in imported}
    assert imported - packages <= found


def test_every_registered_model_and_type_is_found_where_it_is_registered():
    import timm

    import vitrail.models  # noqa: F401

    known = registering_modules()
    ours = [
        name
        for name in timm.list_models()
        if timm.model_entrypoint(name).__module__[:7] == "vitrail"
    ]
    assert len(ours) > 20
    for name in ours:
        assert known[name] == timm.model_entrypoint(name).__module__
    assert known["AdaptiveSwin"] == "vitrail.segmentation.adaptive"


def test_a_model_of_a_hub_may_be_any_of_ours():
    found = code._named_in({"model": "local-dir:runs/mine"})
    assert {"vitrail.octic.vit", "vitrail.shift.swin", "vitrail.position.vit"} <= found
    assert code._named_in({"model": "vit_tiny_patch16_224"}) == set()


def test_the_names_that_the_rules_rest_on_exist():
    modules = code._graph().modules
    assert {*code.REGISTRIES, code.OPENING, code.TAKING, *code.RENDERING} <= modules
    assert "importlib" not in code._file(code.TAKING).read_text()


@pytest.fixture
def one_module(tmp_path, monkeypatch):
    """A package of one module that a test may write; returns its digest."""
    monkeypatch.setattr(code, "PACKAGE", tmp_path)

    def write(text):
        (tmp_path / "module.py").write_text(text)
        code._digest_of.cache_clear()
        digest.cache_clear()
        return digest(frozenset(["vitrail.module"]))

    yield write
    code._digest_of.cache_clear()
    digest.cache_clear()


def test_comments_and_docstrings_do_not_count_and_code_does(one_module):
    before = one_module('"""What it is."""\n\n\ndef f(x):\n    """Double."""\n    return 2 * x\n')
    assert one_module("def f(x):  # twice\n    return 2 * x\n") == before
    assert one_module("def f(x):\n    return 3 * x\n") != before
    assert one_module("def f(x):\n    'a text'\n    return 2 * x\n") == before
    assert one_module("def f(x):\n    y = 'a text'\n    return 2 * x\n") != before


def test_a_module_that_is_not_python_is_one_sentence(one_module):
    with pytest.raises(VitrailError, match=r"module\.py is not valid Python .*correct it"):
        one_module("def f(:\n")
