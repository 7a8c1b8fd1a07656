"""The fixtures of the library's part of DINOv2."""

from tests.replication.papers.octic.dinov2.conftest import free_port, info, make_recipe, recipe

__all__ = ["free_port", "info", "make_recipe", "recipe"]
