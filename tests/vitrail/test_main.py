"""The program, with and without the apparatus."""

import os
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import vitrail as package
from replication.config.functions import import_function
from vitrail.__main__ import main

LIBRARY = ["audit", "pshap", "mmseg"]


@pytest.fixture
def library_alone(tmp_path):
    """Run Python where the library is installed and the apparatus is not."""
    ours = Path(package.__file__).parent
    shutil.copytree(ours, tmp_path / "vitrail", ignore=shutil.ignore_patterns("__pycache__"))

    def run(*arguments):
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
        )

    return run


def test_the_console_script_is_the_program(root):
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert import_function(project["scripts"]["vitrail"], "pyproject.toml") is main


def test_the_version_is_that_of_the_package(vitrail):
    assert vitrail("--version").out == f"vitrail {version('vitrail')}\n"


def test_the_library_alone_offers_its_own_commands(library_alone):
    done = library_alone("-m", "vitrail", "--help")
    assert done.returncode == 0, done.stderr
    listed = done.stdout.split("Commands:\n")[1].splitlines()
    assert [line.split()[0] for line in listed] == LIBRARY


@pytest.mark.parametrize("name", LIBRARY)
def test_each_command_has_both_flags_for_help(vitrail, name):
    short, long = (vitrail(name, flag) for flag in ("-h", "--help"))
    assert short.code == long.code == 0
    assert short.out == long.out
    assert short.out.startswith(f"Usage: vitrail {name}")


def test_the_help_of_a_tool_is_the_tools(vitrail):
    """All that follows the name of a tool is its own."""
    pytest.importorskip("mmseg")
    done = vitrail("mmseg", "misc/print_config", "-h")
    assert done.code == 0
    assert "Print the whole config" in done.out


def test_a_command_of_the_apparatus_is_unknown_to_the_library_alone(library_alone):
    done = library_alone("-m", "vitrail", "status")
    assert done.returncode == 2
    assert "'status'" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_typer_the_program_is_one_sentence(library_alone):
    done = library_alone(
        "-c", "import sys\nsys.modules['typer'] = None\nfrom vitrail.__main__ import main\nmain()"
    )
    assert done.returncode == 2
    assert done.stderr.startswith("vitrail: the command needs typer; ")
    assert done.stderr.endswith(": pip install '.[cli]'\n")


@pytest.mark.slow
def test_a_locale_without_a_paper_s_letters_keeps_no_command_from_working(root):
    """Files are read as UTF-8, and what cannot be printed is replaced."""
    ascii_only = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "vitrail", "show", "shift_table6", "--scale", "laptop"],
        cwd=root,
        env={**os.environ, **ascii_only, "PYTHONIOENCODING": "ascii:strict"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
