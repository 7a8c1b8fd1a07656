"""Models and measures load no package beyond timm's; imports go round in no circle."""

import ast
import pkgutil
import subprocess
import sys
from collections import defaultdict
from graphlib import TopologicalSorter

import grimp
import pytest

import vitrail

FOR_CUDA = ("vitrail.octic.kernels",)  # imports triton, which only CUDA builds of torch bring along


ROOMS = tuple(
    f"vitrail.{room}"
    for room in ("extensions", "measures", "models", "octic", "position", "shift", "variance")
)


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def library():
    """The modules of models and measures, but for those of CUDA."""
    for part in pkgutil.walk_packages(vitrail.__path__, "vitrail."):
        if part.name.startswith(ROOMS) and not part.name.startswith(FOR_CUDA):
            yield part.name


def loaded(*modules):
    """What importing modules loads: modules of ours, and packages of others."""
    done = python(
        "import importlib, sys\n"
        f"for name in {modules}: importlib.import_module(name)\n"
        "print(*sys.modules)"
    )
    assert done.returncode == 0, done.stderr
    names = done.stdout.split()
    ours = {name for name in names if name.split(".")[0] in ("vitrail", "replication")}
    others = {name.split(".")[0] for name in names} - {"vitrail", "replication"}
    return ours, others - set(sys.stdlib_module_names)


@pytest.mark.slow
def test_models_and_measures_load_no_package_beyond_those_of_timm():
    """No table, no figure, and no more of images than timm itself loads."""
    _, of_timm = loaded("timm", "timm.data", "timm.optim")
    ours, others = loaded(*library())
    assert others <= of_timm
    assert not [name for name in ours if name.startswith("replication")]


@pytest.mark.slow
def test_a_class_of_twelve_lines_loads_seven_modules():
    ours, others = loaded("vitrail.octic.group_averaging")
    beside = {"errors", "measures", "measures.outputs"}
    beside |= {"octic", "octic.group", "octic.group_averaging"}
    assert ours == {"vitrail", *(f"vitrail.{name}" for name in beside)}
    assert not others & {"timm", "torchvision", "PIL", "pandas", "matplotlib"}


def test_importing_the_training_package_imports_no_part_of_it():
    parts = "[name for name in sys.modules if name.startswith('replication.training.')]"
    done = python(f"import sys, replication.training; print({parts})")
    assert done.stdout == "[]\n", done.stderr


@pytest.fixture(scope="module")
def imports():
    """All imports among our modules: at the top, within functions, and those of types alone."""
    return grimp.build_graph("vitrail", "replication", cache_dir=None)


def test_modules_do_not_import_each_other_in_circles(imports):
    sorter = TopologicalSorter(
        {name: imports.find_modules_directly_imported_by(name) for name in imports.modules}
    )
    sorter.prepare()  # raises CycleError, which names the modules of a circle


def test_no_two_classes_share_a_name(root):
    places = defaultdict(list)
    for file in sorted((root / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{file.relative_to(root)}:{node.lineno}")
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
