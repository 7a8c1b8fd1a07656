"""A trained run, for measures of the extensions."""

from tests.replication.trained_on_digits import trained_on_digits

__all__ = ["trained_on_digits"]
