"""A finished run on the digits, as the measures' tests have it."""

from tests.trained_on_digits import trained_on_digits  # noqa: F401
