"""What the tests of position embeddings use."""

from tests.vitrail.position.conftest import _seed, images, layout, micro, scrambled

__all__ = ["_seed", "images", "layout", "micro", "scrambled"]
