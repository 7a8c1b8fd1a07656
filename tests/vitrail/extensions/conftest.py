"""A trained run, for measures of the extensions."""

from tests.vitrail.measures.conftest import trained_on_digits

__all__ = ["trained_on_digits"]
