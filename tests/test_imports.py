"""Library code needs no package of the workflow."""

import importlib
import pkgutil
import subprocess
import sys
import tomllib

FOR_CUDA = {"vitrail.octic.kernels"}  # imports triton, which only CUDA builds of torch bring along
BLOCKED = ["pydantic", "yaml", "filelock", "snakemake", "typer"]


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def library(root):
    """The modules that the linter calls library code, those of a package one by one."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = (one for one in settings["contracts"] if one["name"].startswith("library code"))
    for name in contract["source_modules"]:
        yield name
        for part in pkgutil.iter_modules(getattr(importlib.import_module(name), "__path__", [])):
            yield f"{name}.{part.name}"


def test_p_shap_needs_torch_and_timm_alone():
    blocked = [*BLOCKED, "scipy", "sklearn", "pandas", "matplotlib"]
    done = python(
        "import sys\n"
        f"for name in {blocked}: sys.modules[name] = None\n"
        "import vitrail.measures.position_shap, vitrail.measures.permutable; print('fine')"
    )
    assert done.stdout.splitlines()[-1:] == ["fine"], done.stderr


def test_models_and_measures_import_without_the_workflows_packages(root):
    modules = [name for name in library(root) if name not in FOR_CUDA]
    assert "vitrail.variance.augmentation_measures" in modules
    assert "vitrail.shift.polyphase" in modules
    assert "vitrail.octic.layers" in modules
    done = python(
        "import importlib, sys\n"
        f"for name in {BLOCKED}: sys.modules[name] = None\n"
        f"for name in {modules}: importlib.import_module(name)\n"
        "print('fine')"
    )
    assert done.stdout.splitlines()[-1:] == ["fine"], done.stderr


def test_importing_the_training_package_imports_no_part_of_it():
    parts = "[name for name in sys.modules if name.startswith('replication.engine.')]"
    done = python(f"import sys, replication.engine; print({parts})")
    assert done.stdout == "[]\n", done.stderr
