"""The 95 % interval of P-SHAP, which the commands give only for enough images."""

from __future__ import annotations

from typing import cast

from vitrail.checked_measures import FEWEST
from vitrail.commands import count
from vitrail.measures.position_shap.shapley import PositionShap


def p_shap_interval(result: PositionShap) -> tuple[float | None, float | None, str]:
    """Return the ends of a sweep's interval and "", or None, None and why there is no interval."""
    images = int(result.correct.sum())
    if images < FEWEST:
        are = "is" if images == 1 else "are"
        why = f"{count(images, 'image')} {are} too few for an interval, which needs {FEWEST}"
        return None, None, why
    low, high = cast("tuple[float, float]", result.interval)  # a sweep has one
    return low, high, ""
