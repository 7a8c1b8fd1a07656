"""A number depends on exactly the modules that compute it."""

import json
import subprocess
import sys

import pytest

from replication.plan import code
from replication.plan.catalog import load_catalog
from replication.plan.code import closure, digest, modules_of_measurement, registering_modules
from tests.conftest import catalog_of
from vitrail.errors import VitrailError

CONSISTENCIES = (
    *("circular_consistency", "standard_consistency"),
    *("cropped_consistency", "robustness"),
)


@pytest.fixture(scope="module")
def catalog(root):
    return load_catalog(root, scale="smoke")  # which makes all that a scale of stand-ins can


@pytest.fixture(scope="module")
def measured(catalog):
    """Every measurement of the four papers at smoke scale, with the modules behind it."""
    found = []
    for measurement in catalog.measurements.values():
        job = catalog.measurement_node(measurement)
        modules = modules_of_measurement(job.function, job.args, job.recipe, job.reads)
        found.append((measurement, modules))
    return found


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
        *("cross", "shift")
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
    due_now = due(measured, "replication.data.arrays")
    assert due_now >= chosen(measured, lambda measurement: measurement.name == "accuracy")
    scenes = due(measured, "replication.data.scenes")  # its classes are those of mmseg's type
    assert scenes >= chosen(
        measured, lambda measurement: measurement.name == "segmentation_accuracy"
    )
    assert not scenes & chosen(measured, lambda measurement: measurement.name == "accuracy")


def test_what_counts_and_decides_no_number_draws_fetches_or_is_a_command(measured, catalog):
    """What no measurement or training of any paper depends on, although it would count."""
    behind = frozenset[str]().union(*(modules for _, modules in measured))
    for run in catalog.runs.values():
        behind |= code.modules_of_training(run.recipe, run.info)
    idle = {name for name in code._graph().modules if code.counts(name)} - behind
    packages = {module.rpartition(".")[0] for module in code._graph().modules}
    strange = {
        name
        for name in idle - packages
        if not name.endswith(".figures") and not name.startswith("vitrail.commands.")
    }
    assert strange == {
        *(f"replication.data.{name}" for name in ("download", "fetching", "miniature")),
        # Of real data:
        *(f"replication.data.{name}" for name in ("folders", "imagenet_val")),
        "replication.data.segmentation",
        "vitrail.shift.photographs",
        "replication.engine.objective",  # of papers that bring a training of their own
        "replication.engine.weights",  # fetches published weights
        "vitrail.__main__",
        "vitrail.measures.floors",  # judges pixels before a search
        "vitrail.recipes",  # types, imported for the type checker alone
        "vitrail.segmentation.tools",
        "vitrail.style",  # of figures
    }


def test_what_counts_imports_no_other_code_but_plumbing_and_fields_of_recipes():
    graph, allowed = code._graph(), (*code.PLUMBING, code.RECIPES)
    not_counted = {
        (importer, imported)
        for importer in filter(code.counts, graph.modules)
        for imported in graph.find_modules_directly_imported_by(importer)
        if not code.counts(imported) and not imported.startswith(allowed)
    }
    assert not_counted == set()


IMPORTED = """
import importlib, json, sys, types
import vitrail
for registry in ("vitrail.models",):
    sys.modules[registry] = types.ModuleType(registry)
importlib.import_module(sys.argv[1])
print(json.dumps([name for name in sys.modules if name.startswith(("vitrail.", "replication."))]))
"""


@pytest.mark.parametrize(
    "module",
    ["vitrail.measures.consistency", "vitrail.variance.measures", "vitrail.octic.measures"],
)
def test_nothing_that_is_imported_when_it_is_measured_is_missed(module):
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, module], capture_output=True, text=True, check=True
    )
    imported = set(filter(code.counts, json.loads(done.stdout)))
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
    assert known["AdaptiveSwin"] == "vitrail.segmentation.adaptive"


def test_a_model_of_a_hub_may_be_any_of_ours():
    found = code._named_in({"model": "local-dir:runs/mine"})
    assert {"vitrail.octic.vit", "vitrail.shift.swin_sizes", "vitrail.position.vit"} <= found
    assert code._named_in({"model": "vit_tiny_patch16_224"}) == set()


def test_the_names_that_the_rules_rest_on_exist():
    modules = code._graph().modules
    assert {*code.COUNTS, *code.PLUMBING, *code.RENDERING} <= modules


@pytest.fixture
def one_module(tmp_path, monkeypatch):
    """A package of one module that a test may write; returns its digest."""
    monkeypatch.setattr(code, "SOURCES", tmp_path)
    (tmp_path / "vitrail").mkdir()

    def write(text):
        (tmp_path / "vitrail" / "module.py").write_text(text)
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
    before = one_module("FEW = 2\nclass C:\n    most: int = 3\n")
    told = one_module("FEW = 2\n'Of two.'\nclass C:\n    most: int = 3\n    'Not four.'\n")
    assert told == before
    assert one_module("FEW = 3\nclass C:\n    most: int = 3\n") != before


def test_the_words_of_an_error_do_not_count_and_when_it_is_raised_does(one_module):
    before = one_module("def f(x):\n    if x < 0:\n        raise ValueError(f'{x} is below 0')\n")
    assert one_module("def f(x):\n    if x < 0:\n        raise ValueError('wrong')\n") == before
    assert one_module("def f(x):\n    if x < 1:\n        raise ValueError('wrong')\n") != before
    assert one_module("def f(x):\n    if x < 0:\n        raise TypeError('wrong')\n") != before
    before = one_module("def f(x):\n    assert x >= 0, 'it is below 0'\n")
    assert one_module("def f(x):\n    assert x >= 0\n") == before
    assert one_module("def f(x):\n    assert x > 0\n") != before


def test_what_a_measure_costs_does_not_count_and_other_decorators_do(one_module):
    before = one_module("def f(x):\n    return 2 * x\n")
    assert one_module("@passes(2)\ndef f(x):\n    return 2 * x\n") == before
    assert one_module("@passes(lambda given: given['n'])\ndef f(x):\n    return 2 * x\n") == before
    marked = "from vitrail.measures.price import keeps\n@keeps(lambda given: 8)\n@passes(2)\n"
    assert one_module(f"{marked}def f(x):\n    return 2 * x\n") == before
    assert one_module("@passes(2)\ndef f(x):\n    return 3 * x\n") != before
    assert one_module("@doubled(2)\ndef f(x):\n    return 2 * x\n") != before


def test_types_of_functions_do_not_count_and_those_of_classes_do(one_module):
    before = one_module("def f(x, *more, y=1):\n    return 2 * x\n")
    typed = (
        "from collections.abc import Iterable\nfrom typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from torch import Tensor\n"
        "def f(x: Tensor, *more: Iterable[int], y: int = 1) -> Tensor:\n    return 2 * x\n"
    )
    assert one_module(typed) == before
    assert one_module(typed.replace("int = 1", "int = 2")) != before
    assert one_module(f"import torch\n{typed}") != before
    chosen = "if TYPE_CHECKING:\n    A = int\nelse:\n    A = float\n"
    assert one_module(chosen) == one_module("A = float\n") != one_module("A = int\n")
    assert one_module("class A:\n    x: int\n") != one_module("class A:\n    x: float\n")


def test_a_module_that_is_not_python_is_one_sentence(one_module):
    with pytest.raises(VitrailError, match=r"module\.py is not valid Python .*correct it"):
        one_module("def f(:\n")


@pytest.mark.parametrize(
    ("function", "arguments", "sentence"),
    [
        ("vitrail.measures.acuracy:accuracy", (), "did you mean 'vitrail.measures.accuracy'?"),
        ("os.path:join", (), "there is no module 'os.path' in src/"),
        ("vitrail.measures.accuracy:acuracy", (), "did you mean 'accuracy'?"),
        ("vitrail.measures.accuracy:accuracy", ["batchsize"], "did you mean 'batch_size'?"),
        ("vitrail.measures.accuracy:accuracy", ["trained"], "takes no argument 'trained'"),
    ],
)
def test_code_that_does_not_exist_is_told_from_the_source(function, arguments, sentence):
    with pytest.raises(VitrailError) as refused:
        code.require_function(function, arguments, "x: measure 'y'")
    assert sentence in str(refused.value)
    assert str(refused.value).startswith("x: measure 'y': ")


@pytest.mark.parametrize("scale", ["smoke", "laptop", "full"])
def test_all_code_that_the_papers_name_exists(root, scale):
    catalog = catalog_of(scale)
    catalog.require_code()
    catalog.require_devices()
    catalog.require_weights()
    assert len(catalog.measurements) > 200
