"""A copy of the checkout with the template paper in it."""

import shutil

import pytest

from tests.checkout import Checkout
from tests.conftest import FIFTH_PAPER


@pytest.fixture(scope="session")
def add_paper():
    """Add the template paper to a checkout: two folders, nothing else."""

    def add(path):
        shutil.copytree(FIFTH_PAPER / "configs", path / "configs" / "papers" / "template")
        shutil.copytree(FIFTH_PAPER / "library", path / "src" / "vitrail" / "template")
        papers = path / "src" / "replication" / "papers"
        shutil.copytree(FIFTH_PAPER / "apparatus", papers / "template")

    return add


@pytest.fixture(scope="session")
def make_checkout(tmp_path_factory, add_paper):
    """Make a checkout of which the template is the only paper, so that it is planned in seconds."""

    def make():
        copy = Checkout(tmp_path_factory.mktemp("alone"))
        shutil.rmtree(copy.path / "configs" / "papers")
        settings = copy.path / "configs" / "default.yaml"
        settings.write_text(settings.read_text().replace("shift ", "template "))
        add_paper(copy.path)
        return copy

    return make


@pytest.fixture(scope="module")
def checkout(tmp_path_factory, add_paper):
    """A checkout with the template beside the four papers."""
    copy = Checkout(tmp_path_factory.mktemp("checkout"))
    add_paper(copy.path)
    return copy
