"""The wheel is the library alone, with a page for a package index; a checkout also has the rest."""

import email
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest
import yaml

from tests.conftest import ROOT

BUILD = "from setuptools import build_meta as b; b.build_wheel('dist'); b.build_sdist('dist')"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with the wheel and the source distribution of this checkout's library."""
    checkout = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "MANIFEST.in", "LICENSE", "CHANGELOG.md", "CITATION.cff"):
        shutil.copy(ROOT / name, checkout / name)
    for folder in ("src", "examples"):
        ignored = shutil.ignore_patterns("*.egg-info", "__pycache__")
        shutil.copytree(ROOT / folder, checkout / folder, ignore=ignored)
    (checkout / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "test_packaging.py", checkout / "tests")
    (checkout / "dist").mkdir()
    subprocess.run([sys.executable, "-c", BUILD], cwd=checkout, check=True, capture_output=True)
    return checkout / "dist"


def metadata(built):
    """The wheel's metadata, as a package index reads it."""
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        (name,) = (name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(files.read(name))


def test_the_wheel_holds_the_library_and_nothing_else(built):
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"vitrail"}
    assert {"vitrail/py.typed", "vitrail/shift/conversion.py"} <= set(names)


def test_the_source_distribution_has_the_examples_and_no_test_that_cannot_run(built):
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert {"LICENSE", "CHANGELOG.md", "CITATION.cff", "examples/shift.py"} <= names
    assert not [name for name in names if name.startswith(("tests", "src/replication"))]


def test_the_citation_has_the_version_and_the_licence_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert project["version"] == citation["version"]
    assert project["license"] == citation["license"]


def test_the_page_on_an_index_has_no_link_that_only_a_checkout_can_follow(built):
    links = re.findall(r"\]\(([^)]*)\)", metadata(built).get_payload())
    assert links
    assert [link for link in links if not link.startswith("https://")] == []


def test_a_checkout_imports_the_apparatus_and_the_plugins_that_the_wheel_leaves_out():
    plugins = ("snakemake_executor_plugin_vitrail_slurm", "snakemake_logger_plugin_vitrail")
    names = ("vitrail", "replication", *plugins)
    found = {path.name for path in (ROOT / "src").iterdir() if (path / "__init__.py").exists()}
    assert found == set(names)
    code = f"import importlib.util as u; print([u.find_spec(n).origin for n in {names}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr
    assert "None" not in done.stdout


@pytest.mark.slow
def test_the_snippets_of_the_page_run(built):
    page = metadata(built).get_payload()
    snippets = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(snippets) == 3
    code = "\n".join(snippets).replace("pretrained=True", "pretrained=False")
    blocked = ["pydantic", "typer", "snakemake", "sklearn", "pandas", "matplotlib", "scipy"]
    code = f"import sys; sys.modules |= dict.fromkeys({blocked})\n{code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    of_shifts, absolute, relative, within = done.stdout.split()
    assert float(of_shifts) == 0
    assert max(float(absolute), float(relative)) < 1e-5
    assert within == "True"
