"""What many tests need: the checkout, and a small one of their own to change."""

import functools
import gc
import io
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from replication.plan.catalog import load_catalog
from replication.plan.datasets import DatasetInfo, load_registry
from vitrail.__main__ import main

ROOT = Path(__file__).parent.parent
FIFTH_PAPER = ROOT / "tests" / "workflow" / "fifth_paper"


LONGEST = (
    "tests/workflow/test_graph.py",
    "tests/papers/test_published_weights.py",
    "tests/replication/plan/test_due.py",
    "tests/replication/engine/segmentation/test_engine.py",
    "tests/replication/commands/test_plan.py",
    "tests/replication/commands/test_cost.py",
    "tests/replication/commands/test_cost_of_evaluations.py",
    "tests/vitrail/shift/test_equivariance.py",
    "tests/cluster/test_schedules.py",
)
"""The modules whose tests take longest; they come first, so that no worker waits for one."""


def pytest_configure(config):
    config.option.loadscopereorder = False  # xdist would begin with the modules of most tests


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


def pytest_collection_finish():
    """What is imported by now stays, so the garbage collector need not look at it again."""
    gc.collect()
    gc.freeze()


@functools.cache
def catalog_of(scale):
    """The checkout's own catalogue at a scale, which a process reads once."""
    return load_catalog(ROOT, scale=scale)


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
