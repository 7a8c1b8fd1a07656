"""A trained run and a recipe, for measures."""

from tests.replication.training.conftest import info, make_recipe, recipe, run
from tests.vitrail.measures.conftest import trained_on_digits

__all__ = ["info", "make_recipe", "recipe", "run", "trained_on_digits"]
