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
        shutil.copytree(FIFTH_PAPER / "package", path / "src" / "vitrail" / "template")

    return add


@pytest.fixture(scope="module")
def checkout(tmp_path_factory, add_paper):
    """A checkout with the template paper."""
    copy = Checkout(tmp_path_factory.mktemp("checkout"))
    add_paper(copy.path)
    return copy
