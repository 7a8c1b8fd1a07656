import subprocess
import sys
from importlib.metadata import version

import pytest

COMMANDS = ["plan", "doctor", "show", "status", "verify", "publish", "rehearse"]
ALL = [*COMMANDS, "pshap", "audit"]


def python(code, cwd):
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True)


@pytest.mark.parametrize("arguments", [["--help"], ["show", "tiny"], ["show", "tiny", "--help"]])
def test_the_light_commands_do_not_import_torch(checkout, arguments):
    done = python(
        "import sys, replication.cli\n"
        f"sys.argv = ['vitrail', *{arguments!r}]\n"
        "try:\n    replication.cli.app()\n"
        "finally:\n    assert 'torch' not in sys.modules",
        checkout,
    )
    assert done.returncode == 0, done.stderr


def test_a_mistake_is_one_sentence_without_a_traceback(checkout):
    done = python(
        "import sys, replication.cli as cli\n"
        "sys.argv = ['vitrail', 'show', 'tiny_tabel1']\ncli.app()",
        checkout,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("vitrail: target 'tiny_tabel1' is unknown")
    assert "did you mean 'tiny_table1'?" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_version_is_that_of_the_package(vitrail):
    assert vitrail("--version").out == f"vitrail {version('vitrail')}\n"


def test_a_shell_completes_commands(checkout):
    done = python(
        "import os, sys\n"
        "os.environ |= {'_VITRAIL_COMPLETE': 'complete_bash', 'COMP_WORDS': 'vitrail sta'}\n"
        "os.environ['COMP_CWORD'] = '1'\n"
        "sys.argv = ['vitrail']\n"
        "import replication.cli\n"
        "replication.cli.app()",
        checkout,
    )
    assert done.stdout.split() == ["status"]


@pytest.mark.parametrize("command", ALL)
def test_every_command_has_help_with_an_example(vitrail, command):
    done = vitrail(command, "--help")
    assert done.code == 0
    assert f"vitrail {command}" in done.out.split("Usage")[1].split("\n", 1)[1]


@pytest.mark.parametrize("arguments", [[], *([command] for command in ALL)])
def test_no_help_shows_how_it_is_marked_up(vitrail, arguments):
    out = vitrail(*arguments, "--help").out
    assert "\\b" not in out
    assert "\b" not in out


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_scale_is_answered_with_the_closest(vitrail, command):
    target = ["tiny"] if command in ("plan", "show", "rehearse") else []
    done = vitrail(command, *target, "--scale", "smok")
    assert done.code == 2
    assert "scale 'smok' is unknown; did you mean 'smoke'?" in done.err


@pytest.mark.parametrize("command", ["plan", "show", "rehearse"])
def test_an_unknown_target_is_answered_with_the_closest(vitrail, command):
    done = vitrail(command, "tiny_tabel1", "--scale", "smoke")
    assert done.code == 2
    assert "did you mean 'tiny_table1'?" in done.err


def test_outside_of_a_checkout_it_says_where_to_go(vitrail, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    done = vitrail("status")
    assert done.code == 2
    assert "run this from the project's root" in done.err


def test_through_a_pipe_a_row_is_one_line(vitrail, checkout):
    artifacts = checkout / "configs" / "papers" / "tiny" / "artifacts.yaml"
    label = "a row label of many words " * 8
    artifacts.write_text(artifacts.read_text().replace("label: Mixup", f"label: {label.strip()}"))
    (checkout / "configs" / "papers" / "tiny" / "reference" / "table1.csv").unlink()
    out = vitrail("show", "tiny_table1", "--scale", "smoke").out
    assert [line.count(label.strip()) for line in out.splitlines() if "words" in line] == [1, 1]


def test_folders_can_be_chosen(vitrail):
    out = vitrail("show", "tiny", "--scale", "smoke", "--runs", "elsewhere/runs").out
    assert "elsewhere/runs/tiny/plain-" in out


def test_a_bare_installation_has_help_and_says_what_a_command_needs(checkout):
    """With typer and without the rest of the extra `cli`."""
    absent = ["yaml", "filelock", "pandas", "matplotlib", "sklearn", "grimp", "snakemake"]

    def bare(argument):
        return python(
            "import sys\n"
            f"for name in {absent}: sys.modules[name] = None\n"
            "import replication.cli\n"
            f"sys.argv = ['vitrail', {argument!r}]\n"
            "replication.cli.app()",
            checkout,
        )

    shown = bare("--help")
    assert shown.returncode == 0
    assert "plan" in shown.stdout
    command = bare("status")
    assert command.returncode == 2
    assert command.stderr.startswith("vitrail: the command needs ")
    assert command.stderr.endswith(": pip install '.[cli]'\n")


def test_without_typer_the_command_is_one_sentence(checkout):
    done = python(
        "import sys\nsys.modules['typer'] = None\n"
        "from replication.__main__ import vitrail\nvitrail()",
        checkout,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("vitrail: the command needs typer; ")
    assert done.stderr.endswith(": pip install '.[cli]'\n")
