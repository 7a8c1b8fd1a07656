"""The distinct empirical effects of judged claims, and where plots set them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from replication.claims.judge import slack_of

LINEAR = 2.0  # points: effects below are about linear on the axis of the page
FARTHEST = 80.0  # points, at its ends
CLEAREST = 8.0  # half-widths of the interval, at the ends of the strip
LANE = 0.035  # of the strip's width, which a dot takes
TICKS = (-50, -20, -10, -5, -2, 0, 2, 5, 10, 20, 50)  # points


class Bar(NamedTuple):
    """An effect on the axis of the page, in percent of its width; None what is not known.

    `low` and `high` are the ends of the interval, `printed` the printed effect, and the relation
    holds from `needs` on; `equal` are the ends of what counts as equal.
    """

    at: float
    low: float | None
    high: float | None
    printed: float | None
    needs: float | None
    equal: tuple[float, float] | None


class Dot(NamedTuple):
    """An effect in its paper's strip: `x` from 0 to 1, `lane` 0, -1, 1, ... off the middle."""

    x: float
    lane: int
    claim: Mapping[str, Any]


def effects_of(claims: pd.DataFrame) -> pd.DataFrame:
    """The distinct empirical effects that were measured, those on the same numbers once.

    An effect is `left` - `right`. Those in percent are in points; those of another unit, or of
    none, are taken times 100, as a share of one becomes points.
    """
    found = claims[(claims["kind"] == "empirical") & claims["evidence"].notna()]
    found = found.drop_duplicates(["paper", "evidence"])
    points = np.where(found["unit"].isin(["%", "points"]), 1.0, 100.0)
    return found.assign(
        effect=points * (found["left"] - found["right"]),
        half_width=points * found["half_width"],
        printed_effect=points * found["printed_effect"],
        margin=points * found["margin"],
    )


def bar(effect: Mapping[str, Any]) -> Bar:
    """Where an effect of `effects_of` stands on the page's axis, with what is claimed to the right.

    The axis is asinh(x / 2): about linear below two points, logarithmic above.
    """
    sign = -1 if effect["relation"] == "below" else 1
    at, half, margin = sign * effect["effect"], effect["half_width"], effect["margin"]
    known, printed = not math.isnan(half), sign * effect["printed_effect"]
    relation = effect["relation"]
    needs = {"above": margin, "below": margin, "at least": -margin, "equal": None}[relation]
    return Bar(
        percent(at),
        percent(at - half) if known else None,
        percent(at + half) if known else None,
        None if math.isnan(printed) else percent(printed),
        percent(needs) if needs else None,
        (percent(-margin), percent(margin)) if relation == "equal" and margin else None,
    )


def percent(points: float) -> float:
    """Where a number of points stands on the page's axis, in percent of its width."""
    share = math.asinh(points / LINEAR) / math.asinh(FARTHEST / LINEAR)
    return round(50 + 50 * min(1.0, max(-1.0, share)), 2)


def strip(effects: Sequence[Mapping[str, Any]]) -> list[Dot]:
    """A dot for each effect that has an interval: how far it is beyond what its statement needs.

    The distance is in half-widths of the 95 % interval, so that an effect is contrary left of -1,
    undecided between -1 and 1, and as claimed right of 1, whatever its unit. The axis is asinh.
    """
    dots: list[Dot] = []
    places: dict[int, int] = {}
    for effect in effects:
        half = effect["half_width"]
        if math.isnan(half):
            continue
        slack = slack_of(effect["relation"], effect["effect"], effect["margin"])
        clear = slack / half if half else math.copysign(CLEAREST, slack)
        x = strip_place(clear)
        column = round(x / LANE)
        lane = places[column] = places.get(column, -1) + 1
        dots.append(Dot(round(x, 4), (lane + 1) // 2 * (-1) ** lane, effect))
    return dots


def strip_place(half_widths: float) -> float:
    """Where a distance in half-widths stands on a strip, from 0 to 1."""
    share = math.asinh(half_widths) / math.asinh(CLEAREST)
    return 0.5 + 0.48 * min(1.0, max(-1.0, share))
