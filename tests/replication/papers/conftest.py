"""A trained run, for the measures of all papers."""

from tests.trained_on_digits import trained_on_digits

__all__ = ["trained_on_digits"]
