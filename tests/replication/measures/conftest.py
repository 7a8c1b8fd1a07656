"""A trained run and a recipe, for measures."""

from tests.replication.training.conftest import info, make_recipe, recipe, run
from tests.trained_on_digits import trained_on_digits

__all__ = ["info", "make_recipe", "recipe", "run", "trained_on_digits"]
