"""A recipe on a dataset, as in the tests of the data."""

from tests.replication.datasets.conftest import digits, recipe

__all__ = ["digits", "recipe"]
