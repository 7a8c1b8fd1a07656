"""A trained run and a recipe, for measures."""

from tests.replication.trained_on_digits import trained_on_digits
from tests.replication.training.conftest import info, make_recipe, recipe, run

__all__ = ["info", "make_recipe", "recipe", "run", "trained_on_digits"]
