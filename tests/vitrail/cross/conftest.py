"""A finished run on the digits, as the measures' tests have it."""

from tests.vitrail.measures.conftest import trained_on_digits  # noqa: F401
