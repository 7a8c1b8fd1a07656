"""The distinct empirical effects of judged claims, and their positions in plots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from replication.claims.judge import slack_of

LINEAR = 2.0  # points: below this, the axis of the page is about linear
FARTHEST = 80.0  # points at the ends of that axis
CLEAREST = 8.0  # half-widths of the interval at the ends of the strip
LANE = 0.035  # width of a dot, as a share of the strip's width
TICKS = (-50, -20, -10, -5, -2, 0, 2, 5, 10, 20, 50)  # points


class Bar(NamedTuple):
    """The positions of an effect on the page's axis, in percent of its width; None if unknown.

    `low` and `high` are the ends of the interval and `printed` is the printed effect. The relation
    holds to the right of `needs`, which is None if that is 0, or for the relation `equal`; `equal`
    are then the ends of the range that counts as equal.
    """

    at: float
    low: float | None
    high: float | None
    printed: float | None
    needs: float | None
    equal: tuple[float, float] | None


class Dot(NamedTuple):
    """The position of an effect in its paper's strip.

    `x` is from 0 to 1. `lane` is 0, -1, 1, -2, ...: the distance from the middle line, so that dots
    do not overlap.
    """

    x: float
    lane: int
    claim: Mapping[str, Any]


def effects_of(claims: pd.DataFrame) -> pd.DataFrame:
    """Return the distinct empirical effects that were measured; one for claims on the same numbers.

    An effect is `left` - `right`, in points. Numbers in percent are in points already; those of
    another unit, or of none, are multiplied by 100, as for a share of one.
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
    """Return the positions of an effect of `effects_of` on the page's axis.

    For the relation `below` the sign is reversed, so that what is claimed is always to the right.
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
    """Return the position of a number of points on the page's axis, in percent of its width."""
    share = math.asinh(points / LINEAR) / math.asinh(FARTHEST / LINEAR)
    return round(50 + 50 * min(1.0, max(-1.0, share)), 2)


def strip(effects: Sequence[Mapping[str, Any]]) -> list[Dot]:
    """Return a dot for each effect with an interval: how far it is beyond what its claim needs.

    The distance is in half-widths of the 95 % interval, whatever the unit: an effect is contrary
    below -1, undecided from -1 to 1, and held above 1. The axis is asinh.
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
    """Return the position of a distance in half-widths on a strip, from 0 to 1."""
    share = math.asinh(half_widths) / math.asinh(CLEAREST)
    return 0.5 + 0.48 * min(1.0, max(-1.0, share))
