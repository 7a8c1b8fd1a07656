"""A number depends on exactly the modules that compute it."""

import ast
import json
import subprocess
import sys

import grimp
import pytest

from replication.config.functions import OURS
from replication.config.recipe_types import RECIPES
from replication.plan import code_digest as code
from replication.plan.catalog import load_catalog
from replication.plan.code_digest import closure, measurement_code, registering_modules
from replication.plan.module_digest import COUNTS, LEFT_OUT, counts, file_of, module_code, modules
from tests.conftest import catalog_of
from vitrail.errors import VitrailError

CONSISTENCIES = (
    *("circular_consistency", "standard_consistency"),
    *("cropped_consistency", "robustness"),
)


@pytest.fixture(scope="module")
def catalogs(root):
    """The papers on stand-ins, and all that they have at full scale."""
    return catalog_of("laptop"), load_catalog(root, scale="full", extensions=True)


def with_modules(catalog):
    """Every measurement of a catalogue, with the modules behind it."""
    for measurement in catalog.measurements.values():
        recipe = measurement.on.recipe if measurement.on else None
        behind = measurement_code(measurement.function, measurement.args, recipe, measurement.reads)
        yield measurement, behind.modules


@pytest.fixture(scope="module")
def measured(catalogs):
    """Every measurement of the four papers at laptop scale, with the modules behind it."""
    return [*with_modules(catalogs[0])]


@pytest.fixture(scope="module")
def behind(catalogs, measured):
    """The modules behind all measurements and trainings of the four papers, at both scales."""
    runs = [run for catalog in catalogs for run in catalog.runs.values()]
    trained = (code.training_code(run.recipe, run.dataset).modules for run in runs)
    both = [*measured, *with_modules(catalogs[1])]
    return frozenset[str]().union(*trained, *(modules for _, modules in both))


def due(measured, module):
    """The measurements that a change of a module makes due."""
    return {measurement.path for measurement, modules in measured if module in modules}


def chosen(measured, condition):
    paths = {measurement.path for measurement, _ in measured if condition(measurement)}
    assert paths
    return paths


def names_adaptive(measurement):
    """Whether a model of the shift paper is measured, or named by the arguments."""
    said = json.dumps(measurement.args)
    if measurement.on:
        said += measurement.on.recipe.model.model_dump_json()
    return any(f'"{start}_' in said for start in ("a", "canonical", "harmonic", "polyphase"))


@pytest.mark.slow
def test_selections_concern_every_consistency_of_an_adaptive_model_and_no_plain_one(measured):
    due_now = due(measured, "vitrail.shift.polyphase")
    consistency = chosen(measured, lambda measurement: measurement.name in CONSISTENCIES)
    adaptive = chosen(
        measured,
        lambda measurement: measurement.name in CONSISTENCIES and names_adaptive(measurement),
    )
    assert adaptive < consistency
    assert due_now & consistency == adaptive
    assert {measurement.paper for measurement, _ in measured if measurement.path in due_now} == {
        "shift"
    }


def test_a_segmenter_concerns_the_selections_if_its_configuration_names_an_adaptive_type(measured):
    due_now = due(measured, "vitrail.shift.polyphase")
    segmenters = chosen(
        measured,
        lambda measurement: measurement.run and measurement.run.recipe.task == "segmentation",
    )
    adaptive = chosen(
        measured,
        lambda measurement: (
            measurement.run
            and measurement.run.recipe.task == "segmentation"
            and measurement.run.recipe.model.name.startswith("a_swin")
        ),
    )
    assert adaptive <= due_now & segmenters
    plain = chosen(
        measured,
        lambda measurement: (
            measurement.run
            and measurement.run.recipe.model.name == "swin_t_upernet_ade20k_circular"
        ),
    )
    # Their consistency is measured by code that knows the adaptive heads; their accuracy is not.
    assert not {path for path in plain if path.name.startswith("segmentation_acc")} & due_now


def test_the_module_that_opens_a_dataset_concerns_those_who_read_it(measured):
    opening = "replication.datasets.stand_ins.shift"
    loaders = (f"{opening}:", "replication.datasets.stand_ins.patchwork:")  # imports it
    readers = chosen(
        measured,
        lambda measurement: any(info.loader.startswith(loaders) for info in measurement.reads),
    )
    due_now = due(measured, opening)
    assert due_now >= readers
    accuracies = chosen(measured, lambda measurement: measurement.name == "accuracy")
    assert due_now & accuracies == readers & accuracies
    assert set() < readers & accuracies < accuracies
    # Its classes are those of mmseg's type.
    scenes = due(measured, "replication.datasets.stand_ins.patchwork")
    assert scenes >= chosen(
        measured, lambda measurement: measurement.name == "segmentation_accuracy"
    )
    assert not scenes & chosen(measured, lambda measurement: measurement.name == "accuracy")


def test_what_counts_and_decides_no_number_draws_judges_fetches_or_is_a_command(behind):
    """What no measurement or training of any paper depends on, although it would count."""
    idle = {name for name in modules() if counts(name)} - behind
    packages = {module.rpartition(".")[0] for module in modules()}
    strange = {
        name
        for name in idle - packages
        if not name.endswith("figures")
        and not name.startswith(("vitrail.commands.", "replication.claims.", "replication.report."))
    }
    assert strange == {
        *(f"replication.datasets.{name}" for name in ("download", "fetch", "miniature")),
        "replication.datasets.imagenet_val",
        "replication.training.log_tables",  # of commands
        "replication.training.custom_training",  # of papers that bring a training of their own
        "replication.datasets.published_weights",  # fetches published weights
        "vitrail.__main__",
        "vitrail.extensions.fourier_upernet",  # for users of the library
        "vitrail.segmentation.tools",
        "vitrail.style",  # of figures
    }


def test_what_a_number_depends_on_imports_no_code_that_does_not_count_unless_it_says_so(behind):
    imported = frozenset[str]().union(*(module_code(name).imports for name in behind))
    others = {name for name in imported if not counts(name) and not name.startswith(RECIPES)}
    assert "vitrail.errors" in others
    silent = {name for name in others if LEFT_OUT not in file_of(name).read_text()}
    assert silent == {
        "replication.config.recipe",  # its fields decide by their values
        "replication.records.specs",  # errors about weights name the record of a training
    }


def test_only_modules_that_would_count_say_that_they_do_not():
    saying = {name for name, path in modules().items() if LEFT_OUT in path.read_text()}
    assert all(name.startswith(COUNTS) for name in saying)
    assert not any(map(counts, saying))


def test_the_names_that_the_rules_rest_on_exist():
    assert {*COUNTS, RECIPES} <= modules().keys()
    for function in (code.RENDERER, code.REPORTER):
        code.require_function(function, (), "here")
    of_report = code.report_code().modules
    assert code.rendering_code(None).modules < of_report
    assert {"replication.claims.gates", "replication.claims.judge"} <= of_report


def test_imports_are_those_that_grimp_finds():
    graph = grimp.build_graph(*OURS, exclude_type_checking_imports=True, cache_dir=None)
    assert modules().keys() == graph.modules
    for name in filter(counts, modules()):
        assert module_code(name).imports == graph.find_modules_directly_imported_by(name)


def test_no_code_that_counts_computes_with_the_name_of_a_function():
    """Whose names the digests leave out."""
    for name in filter(counts, modules()):
        means = module_code(name).names
        for node in ast.walk(ast.parse(file_of(name).read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("__name__", "__qualname__"):
                assert "#" not in means.get(getattr(node.value, "id", ""), ""), name
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in ("globals", "vars", "eval", "exec"), name


IMPORTED = """
import importlib, json, os, sys, types
import timm, torch  # once for all
for registry in ("vitrail.models",):
    sys.modules[registry] = types.ModuleType(registry)
for module in sys.argv[1:]:
    if os.fork() == 0:
        importlib.import_module(module)
        ours = [name for name in sys.modules if name.startswith(("vitrail.", "replication."))]
        print(json.dumps([module, ours]), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0, module
"""


@pytest.mark.slow
def test_nothing_that_is_imported_when_it_is_measured_is_missed():
    measuring = [
        "replication.measures.consistency",
        "replication.papers.variance.measures",
        "replication.papers.octic.measures",
    ]
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, *measuring], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = dict(map(json.loads, done.stdout.splitlines()))
    assert [*found] == measuring
    for module, names in found.items():
        imported = set(filter(counts, names))
        assert module in imported
        # A package's own file runs, too, but only what is imported from it counts.
        packages = {name.rpartition(".")[0] for name in imported}
        assert imported - packages <= closure({module})


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
    assert known["AdaptiveSwin"] == "vitrail.segmentation.adaptive_backbones"


def test_a_model_of_a_hub_may_be_any_of_ours():
    function = "replication.measures.accuracy:accuracy"
    found = measurement_code(function, {"model": "local-dir:runs/mine"}, None, ()).modules
    assert {"vitrail.octic.vit", "vitrail.shift.swin", "vitrail.position.vit"} <= found
    plain = measurement_code(function, {"model": "vit_tiny_patch16_224"}, None, ())
    assert plain == measurement_code(function, {}, None, ())


@pytest.mark.parametrize(
    ("function", "arguments", "sentence"),
    [
        ("replication.measures.acuracy:accuracy", (), "mean 'replication.measures.accuracy'?"),
        ("os.path:join", (), "there is no module 'os.path' in src/"),
        ("replication.measures.accuracy:acuracy", (), "did you mean 'accuracy'?"),
        ("replication.measures.accuracy:accuracy", ["batchsize"], "did you mean 'batch_size'?"),
        ("replication.measures.accuracy:accuracy", ["trained"], "takes no argument 'trained'"),
        ("vitrail.files:sha256", (), "a change of 'vitrail.files' would make nothing due"),
    ],
)
def test_code_that_does_not_exist_is_told_from_the_source(function, arguments, sentence):
    with pytest.raises(VitrailError) as refused:
        code.require_function(function, arguments, "x: measure 'y'")
    assert sentence in str(refused.value)
    assert str(refused.value).startswith("x: measure 'y': ")


@pytest.mark.parametrize("scale", ["laptop", "full"])
def test_all_code_that_the_papers_name_exists(root, scale):
    catalog = catalog_of(scale)
    catalog.require_code(catalog.artifacts)
    catalog.require_devices(catalog.artifacts)
    catalog.require_weights(catalog.artifacts)
    assert len(catalog.measurements) > 200
