"""The lock holds what the project asks for, and what it installs can be imported in any order."""

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib

import pytest
import yaml
from packaging.specifiers import SpecifierSet

LOCKS = ["requirements.lock", "cuda.lock", "test.lock", "docs.lock"]


def packages(root, name):
    """What a lock says of each package: its version and its hashes."""
    text = (root / "envs" / name).read_text().replace("\\\n", " ")
    entries = [line.split() for line in text.splitlines() if line and line[0] != "#"]
    return {pin.partition("==")[0]: (pin.partition("==")[2], hashes) for pin, *hashes in entries}


def asked(lines):
    """The names of requirements, as a lock writes them."""
    names = [re.match(r"[\w.-]+", line)[0] for line in lines if line and line[0] != "#"]
    return {name.lower().replace("_", "-") for name in names}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_is_pinned_with_hashes(root, lock):
    for version, hashes in packages(root, lock).values():
        assert re.fullmatch(r"[\w.]+", version)  # no "+cpu": both builds of torch satisfy the pin
        assert hashes
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", digest) for digest in hashes)


@pytest.mark.parametrize("name", ["requirements", "test", "docs"])
def test_the_lock_holds_what_is_asked_for(root, name):
    lines = (root / "envs" / f"{name}.in").read_text().splitlines()
    assert asked(lines) <= set(packages(root, f"{name}.lock"))


def test_what_tests_need_besides_is_not_installed_for_results(root):
    results, tests = packages(root, "requirements.lock"), packages(root, "test.lock")
    assert not set(results) & set(tests)
    assert {"pytest", "ruff", "shap", "numba"} <= set(tests)


def test_the_cpu_build_is_of_the_locked_version_of_torch(root):
    (version, hashes) = packages(root, "cpu.lock")["torch"]
    assert version == packages(root, "requirements.lock")["torch"][0] + "+cpu"
    assert len(set(hashes)) == 6  # Python 3.11, 3.12 and 3.13 on two architectures


def dependencies(root):
    """What the project and its extras depend on, beside the project itself."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = asked([*project["dependencies"], *(line for extra in extras for line in extra)])
    return wanted - {project["name"]}


def test_the_lock_holds_what_the_package_depends_on(root):
    locked = packages(root, "requirements.lock") | packages(root, "docs.lock")
    assert dependencies(root) <= set(locked)


def installed_by_name(text):
    """The packages that a text tells to install from an index, not from a folder or a file.

    A command ends with its line, at a backquote or a double quote, or at a sign of the shell.
    """
    named = set()
    for command in re.findall(r"pip3? install\b([^\n`\"#&;|]*)", text):
        words = iter(shlex.split(command))
        for word in words:
            if word in ("-r", "-c", "-e", "--requirement", "--constraint", "--editable"):
                next(words)
            elif not word.startswith(("-", ".", "/", "$", "<")):
                named |= asked([word])
    return named


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run: pip install 'other[cli]'\"", {"other"}),
        ("    pip install --quiet Torch some_thing>=2  # two", {"torch", "some-thing"}),
        ("use `pip install one` and then two", {"one"}),
        ("pip install . && pip install '.[cli]'; pip install -r envs/a.lock -e .", set()),
        ("pip installs what packages ask for", set()),
    ],
)
def test_packages_are_read_from_commands_that_install_them(text, expected):
    assert installed_by_name(text) == expected


def test_nobody_is_told_to_install_a_package_that_is_not_a_dependency(root):
    """The project itself is installed from a checkout: its name on an index may be another's."""
    places = ("*.md", "docs/**/*.md", "envs/**/*.md", "examples/*.py", "src/**/*.py", "Makefile")
    told = {
        file.relative_to(root): installed_by_name(file.read_text(encoding="utf-8"))
        for place in places
        for file in root.glob(place)
        if file.is_file()
    }
    assert sum("pip install" in (root / file).read_text() for file in told) >= 2
    assert {file: names for file, names in told.items() if names - dependencies(root)} == {}


def test_the_lock_of_the_site_changes_no_other_pin(root):
    locked, site = packages(root, "requirements.lock"), packages(root, "docs.lock")
    shared = set(locked) & set(site)
    assert {name: site[name][0] for name in shared} == {name: locked[name][0] for name in shared}


def test_the_tools_that_build_packages_are_those_of_the_lock(root):
    lines = (root / "envs" / "build.txt").read_text().splitlines()
    tools = dict(line.split("==") for line in lines if line[0] != "#")
    locked = packages(root, "requirements.lock")
    assert {"setuptools", "wheel"} <= set(tools)
    for name in set(tools) & set(locked):
        assert tools[name] == locked[name][0]


def test_the_cuda_libraries_are_not_installed_where_torch_needs_none(root):
    assert not [n for n in packages(root, "requirements.lock") if n.startswith(("nvidia", "cuda"))]
    assert "nvidia-cublas" in packages(root, "cuda.lock")


def test_the_conda_environment_has_the_same_pins(root):
    environment = yaml.safe_load((root / "envs" / "environment.yml").read_text())
    pins = {name: pin for name, (pin, _) in packages(root, "requirements.lock").items()}
    pins["opencv-python"] = pins.pop("opencv-python-headless")
    assert dict(line.split("==") for line in environment["dependencies"][-1]["pip"]) == pins


def python(code, **options):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, **options)


@pytest.mark.parametrize(
    ("version", "allowed"),
    [("3.11.3", False), ("3.11.4", True), ("3.13.20", True), ("3.14.0", False), ("4.0.0", False)],
)
def test_make_refuses_a_python_that_the_project_excludes(root, version, allowed):
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert (version in SpecifierSet(project["requires-python"])) is allowed
    makefile = (root / "Makefile").read_text()
    (check,) = re.findall(r"^define CHECK_PYTHON\n(.*?)^endef", makefile, re.MULTILINE | re.DOTALL)
    numbers = tuple(map(int, version.split(".")))
    done = python(f"import sys; sys.version_info = (*{numbers}, 'final', 0)\n{check}", cwd=root)
    assert done.returncode == (0 if allowed else 1), done.stderr
    assert "Traceback" not in done.stderr


PIP = """
import os, sys
print("pip:", os.environ.get("PIP_USER"), os.environ.get("PIP_TARGET"), flush=True)
if "cpu.lock" in sys.argv:
    sys.exit("WARNING: slow\\nERROR: no room")
"""
"""Stands for pip: it says where it would install to, and cannot install the CPU build of torch."""

PYTHON = """#!/bin/sh
case "$*" in
    "-m venv"*)
        "{python}" "$@" --without-pip
        cp -r {folder}/pip .venv/lib/python*/site-packages ;;
    *) exec "{python}" "$@" ;;
esac
"""
"""A Python whose environments have that pip."""


@pytest.fixture
def make(tmp_path):
    """Run make in a folder, with a pip that installs nothing."""
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__main__.py").write_text(PIP)
    own = tmp_path / "python"
    own.write_text(PYTHON.format(python=sys.executable, folder=tmp_path))
    own.chmod(0o755)

    def make(folder, target, **variables):
        environment = {**os.environ, "TORCH": "cpu", **variables}
        command = ["make", target, f"PYTHON={own}"]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)

    return make


@pytest.fixture
def project(root, tmp_path):
    """What make reads of a checkout in which nothing is installed."""
    folder = tmp_path / "a project"
    shutil.copytree(root / "envs", folder / "envs")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(root / name, folder)
    return folder


def test_packages_go_into_the_environment_whatever_pips_settings_say(make, project):
    for script in (project / "envs").glob("*.sh"):
        script.chmod(0o644)  # a copy may lose the modes of scripts
    done = make(project, "install", PIP_USER="1", PIP_TARGET="elsewhere")
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith("pip:")]
    assert len(said) >= 2
    assert {*said} == {"pip: 0 None"}
    if sys.platform == "linux":  # which alone has a CPU build of its own
        assert "(ERROR: no room)" in done.stdout  # why it was not installed, in pip's words


@pytest.mark.parametrize("move", [shutil.move, functools.partial(shutil.copytree, symlinks=True)])
def test_an_environment_that_was_made_elsewhere_is_refused_with_a_remedy_that_works(
    make, project, move
):
    assert make(project, "install").returncode == 0
    again = make(project, "install")
    assert again.returncode == 0
    assert "pip:" not in again.stdout
    here = project.with_name("here")
    move(project, here)
    refused = make(here, "test")
    assert refused.returncode != 0
    (said,) = [line for line in refused.stderr.splitlines() if line.startswith("vitrail: ")]
    assert str(project / ".venv") in said
    assert said.endswith(": rm -rf .venv")
    shutil.rmtree(here / ".venv")
    assert "pip:" in make(here, "install").stdout
    assert "pip:" not in make(here, "install").stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torchvision", "timm"])
def test_it_can_be_imported_with_nothing_imported_before(name):
    done = python(f"import {name}")
    assert done.returncode == 0, done.stderr


@pytest.fixture
def before_torchvision(root):
    """What a Python does that finds `torchvision_on_cpu`, installed or not."""
    folder = str(root / "envs")
    return f"import sys; sys.path.insert(0, {folder!r}); import torchvision_on_cpu, torch\n"


@pytest.mark.slow
def test_torchvision_can_be_imported_where_its_extension_does_not_load(before_torchvision):
    done = python(
        before_torchvision + "def refuse(path): raise OSError('built for another CUDA')\n"
        "torch.ops.load_library = refuse\n"
        "import torchvision\n"
        "print(torch.ops.torchvision.nms.default._schema)\n"
        "print(torch.ops.torchvision.qnms.default._schema)\n"
    )
    arguments = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor\n"
    assert done.stdout == f"torchvision::nms{arguments}torchvision::qnms{arguments}", done.stderr


@pytest.mark.slow
def test_operators_that_the_extension_declares_are_not_declared_again(before_torchvision):
    done = python(
        before_torchvision + "extension = torch.library.Library('torchvision', 'DEF')\n"
        "def load(path):\n"
        "    for name in ('nms', 'qnms'):\n"
        "        if not hasattr(torch.ops.torchvision, name):\n"
        "            extension.define(name + '(Tensor dets, Tensor scores, float own) -> Tensor')\n"
        "    raise OSError('so that torchvision asks it for nothing else')\n"
        "torch.ops.load_library = load\n"
        "import torchvision\n"
        "print(torch.ops.torchvision.nms.default._schema)\n"
    )
    assert "float own" in done.stdout, done.stderr


def test_python_starts_without_torch():
    done = python("import sys; print({'torch', 'torchvision'} & set(sys.modules))")
    assert done.stdout == "set()\n", done.stderr
