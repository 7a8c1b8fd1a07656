"""Library code needs no package of the workflow."""

import pkgutil
import subprocess
import sys

import vitrine.variance

BLOCKED = ["pydantic", "yaml", "filelock", "snakemake", "typer"]


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_models_and_measures_import_without_the_workflows_packages():
    parts = pkgutil.iter_modules(vitrine.variance.__path__, "vitrine.variance.")
    modules = [*(part.name for part in parts), "vitrine.models", "vitrine.measures.accuracy"]
    assert "vitrine.variance.augmentation_measures" in modules
    done = python(
        "import importlib, sys\n"
        f"for name in {BLOCKED}: sys.modules[name] = None\n"
        f"for name in {modules}: importlib.import_module(name)\n"
        "print('fine')"
    )
    assert done.stdout.splitlines()[-1:] == ["fine"], done.stderr


def test_importing_the_training_package_imports_no_part_of_it():
    parts = "[name for name in sys.modules if name.startswith('vitrine.training.')]"
    done = python(f"import sys, vitrine.training; print({parts})")
    assert done.stdout == "[]\n", done.stderr
