"""The number of digits with which numbers are written."""

from __future__ import annotations

import math

PLAIN = 8
"""Numbers with more decimals than this are written in scientific notation."""
LARGE = 1e6
"""Numbers with decimals are written in scientific notation from this on."""


def format_number(value: float, decimals: int | None) -> str:
    """Write a number with `decimals`, or (None) with three significant digits; never "-0".

    Numbers with decimals, from `LARGE` on, have three significant digits, too.
    """
    if decimals and abs(value) >= LARGE:
        return f"{value:.2e}"
    if decimals is not None and decimals <= PLAIN:
        return f"{value:z.{decimals}f}"
    if value == 0 or not math.isfinite(value):
        return f"{value:zg}"
    magnitude = math.floor(math.log10(abs(value)))
    if decimals is not None:
        return f"{value:.{max(0, decimals + magnitude)}e}"
    return f"{value:.{max(0, 2 - magnitude)}f}" if magnitude >= -4 else f"{value:.2e}"


def decimals_by(uncertainty: float) -> int | None:
    """Return the decimals that show two digits of an uncertainty; None if it is 0."""
    return max(0, 1 - math.floor(math.log10(uncertainty))) if uncertainty > 0 else None
