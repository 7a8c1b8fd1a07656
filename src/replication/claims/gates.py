"""Gates: when an empirical claim is tested at all, decided before any result is looked at.

The gates read the results of the searches on held-out training images (`replication.config.tuning`)
and the values that the paper prints. They read none of the results that the claim is about.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replication.config.claims import Claim
    from replication.config.paper import Printed
    from replication.config.tuning import TuningResult

PLATEAU = 1.0
"""A model counts as trained if twice the steps gain at most this many points."""

CLEAR = 3.0
"""A model must be above chance by this many standard errors."""


def closed(claim: Claim, models: Iterable[TuningResult | None], printed: Iterable[Printed]) -> str:
    """Return why a claim on trained models is not tested; "" if it is.

    A claim is tested if all of these hold: each model is covered by a search, with its number of
    steps if it is on the model's own data set, and all searches have one grid; each model is at its
    plateau and above chance; at least one is better than every pixel baseline; and the printed
    effect is not below its own printed spread.
    """
    models, printed = list(models), list(printed)
    known = [model for model in models if model]
    if len(known) < len(models):
        return "a model has no search, or one on its data set with another number of steps"
    if len({tuple(model.rates) for model in known}) > 1:
        return "the models were searched on different grids"
    for model in known:
        if model.twice > model.once + PLATEAU:
            gain = model.twice - model.once
            return (
                f"training is short: {model.searched} gains {gain:.1f} points in the search from "
                "twice the training steps"
            )
    for model in known:
        chance = model.chance / 100
        error = 100 * math.sqrt(chance * (1 - chance) / model.images)
        if model.once < model.chance + CLEAR * error:
            return f"{model.searched} is at chance ({model.once:.1f} %)"
    if known and all(model.baseline and model.once < model.baseline[1] for model in known):
        best = max(known, key=lambda model: model.once)
        rule, score = best.baseline or ("", 0.0)
        return f"{rule} on pixels has {score:.1f} %, and {best.searched} {best.once:.1f} %"
    return _printed_by_chance(claim, printed)


def printed_effect(printed: Iterable[Printed]) -> tuple[float, float] | None:
    """Return the difference of two printed numbers and its spread; None without two numbers.

    The spread is the root of the sum of squares of both printed standard deviations, NaN if one is
    not printed.
    """
    sides = [cell for cell in printed if not isinstance(cell.value, str)]
    if len(sides) != 2:
        return None
    left, right = (float(cell.value) for cell in sides)
    spread = math.hypot(*(math.nan if cell.std is None else cell.std for cell in sides))
    return left - right, spread


def _printed_by_chance(claim: Claim, printed: Iterable[Printed]) -> str:
    if claim.relation not in ("above", "below") or (known := printed_effect(printed)) is None:
        return ""
    effect, spread = known
    if abs(effect) >= spread or math.isnan(spread):
        return ""
    return f"the printed effect, {effect:+.3g}, is below its own printed spread, {spread:.2g}"
