"""The run that measures are tested on."""

from tests.vitrail.measures.conftest import trained_on_digits

__all__ = ["trained_on_digits"]
