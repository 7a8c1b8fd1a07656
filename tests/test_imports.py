"""Library code needs no package of the workflow."""

import pkgutil
import subprocess
import sys

import vitrail

FOR_CUDA = ("vitrail.octic.kernels",)  # imports triton, which only CUDA builds of torch bring along
BLOCKED = ["pydantic", "yaml", "filelock", "snakemake", "typer"]


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def library():
    """The modules of the library, but for those of its extras and of CUDA."""
    others = (*FOR_CUDA, "vitrail.__main__", "vitrail.commands", "vitrail.segmentation")
    for part in pkgutil.walk_packages(vitrail.__path__, "vitrail."):
        if not part.name.startswith(others) and not part.name.endswith("figures"):
            yield part.name


def test_p_shap_needs_torch_and_timm_alone():
    blocked = [*BLOCKED, "scipy", "sklearn", "pandas", "matplotlib"]
    done = python(
        "import sys\n"
        f"for name in {blocked}: sys.modules[name] = None\n"
        "import vitrail.measures.position_shap, vitrail.measures.permutable; print('fine')"
    )
    assert done.stdout.splitlines()[-1:] == ["fine"], done.stderr


def test_models_and_measures_import_without_the_workflows_packages():
    modules = list(library())
    assert "vitrail.variance.augmentation_measures" in modules
    assert "vitrail.shift.polyphase" in modules
    assert "vitrail.octic.layers" in modules
    assert "vitrail.images.transforms" in modules
    assert "vitrail.dinov2.losses" in modules
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
