"""Commands of the program, run in a checkout."""

import os
import subprocess
import sys

import pytest

from replication.cluster.failures import FOLDER, USER_ERROR, Failure

COMMANDS = ["plan", "doctor", "show", "why", "status", "verify", "publish", "restore"]
STEPS = ["run", "fetch-weights", "address", "serve"]
ALL = [*COMMANDS, "curves", "fetch", "search", "register", "audit", "pshap", "mmseg"]
PROGRAM = "import sys, vitrail.__main__ as program\n"


def python(code, cwd):
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True)


@pytest.mark.parametrize("arguments", [["--help"], ["show", "tiny"]])
def test_the_light_commands_do_not_import_torch(checkout, arguments):
    done = python(
        f"{PROGRAM}sys.argv = ['vitrail', *{arguments!r}]\n"
        "try:\n    program.main()\n"
        "finally:\n    assert 'torch' not in sys.modules",
        checkout,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["show", "audit"])
def test_help_imports_neither_torch_nor_pandas_nor_the_plan(checkout, command):
    """Every command's module is imported to list the commands."""
    done = python(
        f"{PROGRAM}sys.argv = ['vitrail', {command!r}, '--help']\n"
        "try:\n    program.main()\n"
        "finally:\n    assert not {'torch', 'pandas', 'replication.plan'} & {*sys.modules}",
        checkout,
    )
    assert done.returncode == 0, done.stderr


def test_a_mistake_is_one_sentence_without_a_traceback(checkout):
    done = subprocess.run(
        [sys.executable, "-m", "vitrail", "show", "tiny_tabel1"],
        cwd=checkout,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("vitrail: target 'tiny_tabel1' is unknown")
    assert "did you mean 'tiny_table1'?" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_shell_completes_commands_and_no_hidden_ones(checkout):
    def completed(word):
        asked = {"_VITRAIL_COMPLETE": "complete_bash", "COMP_WORDS": f"vitrail {word}"}
        asked["COMP_CWORD"] = "1"
        done = python(
            f"import os\nos.environ |= {asked}\n{PROGRAM}sys.argv = ['vitrail']\nprogram.main()",
            checkout,
        )
        return done.stdout.split()

    assert completed("sta") == ["status"]
    assert completed("fet") == ["fetch"]
    assert completed("ser") == []


@pytest.mark.parametrize("command", [*ALL, *STEPS])
def test_every_command_has_help_with_an_example(vitrail, command):
    done = vitrail(command, "--help")
    assert done.code == 0
    assert f"vitrail {command}" in done.out.split("Usage")[1].split("\n", 1)[1]


def test_the_list_of_commands_hides_the_steps_and_cuts_no_sentence(vitrail):
    rows = [
        line.split(maxsplit=1)
        for line in vitrail("--help").out.split("Commands:\n")[1].splitlines()
    ]
    assert sorted(name for name, _ in rows) == sorted(ALL)
    assert all(sentence.endswith(".") and not sentence.endswith("...") for _, sentence in rows)


@pytest.mark.parametrize("arguments", [[], *([command] for command in [*ALL, *STEPS])])
def test_no_help_shows_its_markup(vitrail, arguments):
    out = vitrail(*arguments, "--help").out
    assert "\b" not in out
    assert "\\b" not in out


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_scale_is_answered_with_the_closest(vitrail, command):
    place = ["tiny_table1", "Plain", "Top-1"]
    target = {"plan": ["tiny"], "show": ["tiny"], "restore": ["tiny"], "why": place}
    done = vitrail(command, *target.get(command, []), "--scale", "smal")
    assert done.code == 2
    assert "scale 'smal' is unknown; did you mean 'small'?" in done.err


@pytest.mark.parametrize("command", ["plan", "show"])
def test_an_unknown_target_is_answered_with_the_closest(vitrail, command):
    done = vitrail(command, "tiny_tabel1", "--scale", "small")
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
    for file in ("reference/table1.csv", "claims.yaml"):
        (checkout / "configs" / "papers" / "tiny" / file).unlink()
    out = vitrail("show", "tiny_table1", "--scale", "small").out
    assert [line.count(label.strip()) for line in out.splitlines() if "words" in line] == [1, 1]


def test_folders_can_be_chosen(vitrail):
    out = vitrail("show", "tiny", "--scale", "small", "--long", "--runs", "elsewhere/runs").out
    assert "elsewhere/runs/tiny/plain-" in out


def test_a_bare_installation_has_help_and_says_what_a_command_needs(checkout):
    """With typer and without the rest of the extra `cli`."""
    absent = ["yaml", "filelock", "pandas", "matplotlib", "sklearn", "snakemake"]

    def bare(argument):
        return python(
            f"import sys\nfor name in {absent}: sys.modules[name] = None\n"
            f"{PROGRAM}sys.argv = ['vitrail', {argument!r}]\nprogram.main()",
            checkout,
        )

    shown = bare("--help")
    assert shown.returncode == 0
    assert "plan" in shown.stdout
    command = bare("status")
    assert command.returncode == 2
    assert command.stderr.startswith("vitrail: the command needs ")
    assert command.stderr.endswith(": pip install '.[cli]'\n")


@pytest.mark.parametrize(
    ("asked", "printed"),
    [
        ("echo n7.ib", "n7.ib\n"),
        ("", None),
        ("no-such-command", ""),
        ("echo a b", ""),
        ("true", ""),
    ],
)
def test_the_address_of_the_first_node_is_what_the_users_command_prints(
    vitrail, monkeypatch, tmp_path, asked, printed
):
    """If it prints none, that is the user's mistake, which the executor does not retry."""
    monkeypatch.setenv("VITRAIL_ADDRESS", asked)
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.delenv("SLURM_ARRAY_JOB_ID", raising=False)
    done = vitrail("address")
    if printed is None:
        printed = f"{os.uname().nodename}\n"
    assert done.out == printed
    failure = Failure.read(tmp_path, "7")
    if printed:
        assert (done.code, failure) == (0, None)
    else:
        assert (done.code, failure.status) == (USER_ERROR, USER_ERROR)
        assert f"VITRAIL_ADDRESS is '{asked}'" in done.err
