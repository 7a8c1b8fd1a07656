"""What the tests of octic layers use."""

from tests.vitrail.octic.conftest import _seed, element, scrambled

__all__ = ["_seed", "element", "scrambled"]
