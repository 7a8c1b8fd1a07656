"""The fixtures of tests that train: a small recipe, that recipe with changes, and its dataset."""

import pytest

from replication.config.schema import merge


def recipe_fixtures(kind, base, dataset):
    """Return `make_recipe`, `recipe` and `info`, for a conftest to keep under these names."""

    @pytest.fixture(scope="session")
    def make_recipe():
        return lambda *deltas: kind.model_validate(merge(base, *deltas))

    @pytest.fixture(scope="session")
    def recipe(make_recipe):
        return make_recipe()

    @pytest.fixture(scope="session")
    def info(registry):
        return registry[dataset]

    return make_recipe, recipe, info
