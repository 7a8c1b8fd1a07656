"""What many tests need: the checkout, and a small one of their own to change."""

import functools
import gc
import io
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from replication.config.datasets import DatasetInfo, load_registry
from replication.plan.catalog import load_catalog
from tests.repository import files_of
from vitrail.__main__ import main

ROOT = Path(__file__).parent.parent
FIFTH_PAPER = ROOT / "tests" / "workflow" / "fifth_paper"


LONGEST = (
    "tests/workflow/test_graph.py",
    "tests/papers/test_published_weights.py",
    "tests/replication/plan/test_due.py",
    "tests/replication/training/segmentation/test_engine.py",
    "tests/replication/cli/test_plan.py",
    "tests/replication/pricing/test_speed.py",
    "tests/replication/pricing/test_counts.py",
    "tests/vitrail/shift/test_conversion.py",
    "tests/cluster/test_schedules.py",
)
"""The modules whose tests take longest; they come first, so that no worker waits for one."""


OF_THE_MACHINE = re.compile(
    r"(PATH|TMPDIR|TERM|SHELL|USER|LOGNAME|VITRAIL_SCHEDULES)"
    r"|(PYTHON|PYTEST|COV|LD|OMP|MKL|OPENBLAS|NVPL|CUDA|NVIDIA)\w*"
)
"""The variables of the environment that tests may see; others could change what they find."""


def pytest_configure(config):
    for name in [name for name in os.environ if not OF_THE_MACHINE.fullmatch(name)]:
        del os.environ[name]
    home = Path(tempfile.mkdtemp(prefix="vitrail-home-"))
    config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))
    (home / ".gitconfig").write_text("[safe]\n\tdirectory = *\n")  # a checkout may be another's
    os.environ["HOME"] = str(home)
    config.option.loadscopereorder = False  # xdist would begin with the modules of most tests


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


def pytest_collection_finish():
    """What is imported by now stays, so the garbage collector need not look at it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def tracked(tmp_path_factory):
    """The folder in which tests work: links to what git has of the checkout.

    Data, runs and results lie in the working folder, and those in the checkout are the user's.
    """
    folder = tmp_path_factory.mktemp("work")
    (folder / "results").mkdir()
    for name in {Path(file).parts[0] for file in files_of(ROOT)} - {"results"} | {
        "results/published"
    }:
        (folder / name).symlink_to(ROOT / name)
    before = Path.cwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)


@functools.cache
def catalog_of(scale, **changes):
    """The checkout's own catalogue at a scale, which a process reads once."""
    return load_catalog(ROOT, scale=scale, **changes)


@pytest.fixture(scope="session")
def root():
    """The checkout that is tested."""
    return ROOT


@pytest.fixture(scope="session")
def registry() -> dict[str, DatasetInfo]:
    """Every dataset of the papers and every stand-in, by name."""
    return load_registry(ROOT / "configs" / "datasets.yaml")


@pytest.fixture
def small_checkout(tmp_path):
    """The configuration of a checkout whose only paper is the template of a fifth one."""
    configs = copy_configs_without_papers(tmp_path, lead_paper="template")
    shutil.copytree(FIFTH_PAPER / "configs", configs / "papers" / "template")
    return tmp_path


def copy_configs_without_papers(checkout, lead_paper):
    """Copy what is the same for every paper; the folder is returned."""
    configs = checkout / "configs"
    shutil.copytree(ROOT / "configs", configs, ignore=shutil.ignore_patterns("papers"))
    settings = configs / "default.yaml"
    settings.write_text(settings.read_text().replace("shift ", f"{lead_paper} "))
    return configs


@pytest.fixture
def vitrail(monkeypatch, capsys):
    """Run ``vitrail`` in this process; returns exit status, standard output and standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["vitrail", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return SimpleNamespace(code=int(ended.value.code or 0), out=said.out, err=said.err)

    return run


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Run ``vitrail`` in this process on a terminal of 100 columns; returns the lines it prints."""

    def run(*arguments):
        printed = _Terminal()
        with monkeypatch.context() as patch:
            patch.setenv("COLUMNS", "100")
            patch.setenv("TERM", "xterm")
            patch.setattr(sys, "argv", ["vitrail", *map(str, arguments)])
            patch.setattr(sys, "stdout", printed)
            with pytest.raises(SystemExit):
                main()
        plain = re.sub(r"\x1b\[[\d;]*m", "", printed.getvalue())
        return [line.rstrip() for line in plain.splitlines()]

    return run


def rows_of(lines):
    """Those of printed lines that are of tables: two blanks part their columns."""
    return [line for line in lines if "  " in line.strip()]
