"""The fixtures of the library's part of DINOv2."""

from tests.vitrail.dinov2.conftest import free_port, info, make_recipe, recipe

__all__ = ["free_port", "info", "make_recipe", "recipe"]
