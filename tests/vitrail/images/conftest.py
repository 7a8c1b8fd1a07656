"""A recipe on a dataset, as in the tests of the data."""

from tests.replication.data.conftest import digits, recipe

__all__ = ["digits", "recipe"]
