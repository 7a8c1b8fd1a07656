"""What many tests need: the checkout, and a small one of their own to change."""

import shutil
from pathlib import Path

import pytest

from replication.plan.datasets import DatasetInfo, load_registry

ROOT = Path(__file__).parent.parent
FIFTH_PAPER = ROOT / "tests" / "workflow" / "fifth_paper"


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
