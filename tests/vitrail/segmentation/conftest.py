"""The small configuration of MMSegmentation that the apparatus is tested with."""

from tests.replication.training.segmentation.conftest import data_root, info, make_recipe, recipe

__all__ = ["data_root", "info", "make_recipe", "recipe"]
