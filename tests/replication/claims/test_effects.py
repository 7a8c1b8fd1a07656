"""Effects stand on the page where their numbers say, and strips show verdicts by place."""

import math

import pandas as pd
import pytest

from replication.claims.effects import (
    CLEAREST,
    FARTHEST,
    Bar,
    bar,
    effects_of,
    percent,
    strip,
    strip_place,
)


def effect(**fields):
    defaults = {"relation": "above", "effect": 3.0, "half_width": 1.0, "margin": 0.0}
    return {**defaults, "printed_effect": math.nan, **fields}


def test_the_axis_is_odd_rises_and_ends_at_its_edges():
    assert percent(0.0) == 50.0
    places = [percent(points) for points in (-90, -FARTHEST, -5, -1, 0, 1, 5, FARTHEST, 90)]
    assert places == sorted(places)
    assert (places[0], places[-1]) == (0.0, 100.0)
    assert percent(7.0) - 50 == pytest.approx(50 - percent(-7.0))


def test_what_is_claimed_is_to_the_right_whichever_way_the_relation_goes():
    above = bar(effect(printed_effect=4.0, margin=1.0))
    below = bar(effect(effect=-3.0, relation="below", printed_effect=-4.0, margin=1.0))
    assert above == below
    assert above == Bar(percent(3), percent(2), percent(4), percent(4), percent(1), None)
    assert bar(effect(relation="at least", margin=2.0)).needs == percent(-2)
    equal = bar(effect(relation="equal", margin=2.0, half_width=math.nan))
    assert (equal.needs, equal.low) == (None, None)
    assert equal.equal == (percent(-2), percent(2))


@pytest.mark.parametrize(("relation", "sign"), [("above", 1), ("below", -1), ("at least", 1)])
def test_a_dot_is_right_of_the_band_if_and_only_if_its_interval_decides(relation, sign):
    clear = {"held": 3.0, "undecided": 0.5, "contrary": -3.0}
    given = {
        status: effect(effect=sign * times * 2.0, half_width=2.0, relation=relation)
        for status, times in clear.items()
    }
    held, undecided, contrary = (strip([found])[0].x for found in given.values())
    assert contrary < strip_place(-1) < undecided < strip_place(1) < held


def test_dots_at_one_place_are_stacked_and_those_without_an_interval_left_out():
    dots = strip([effect(), effect(), effect(), effect(half_width=math.nan)])
    assert len({dot.x for dot in dots}) == 1
    assert [dot.lane for dot in dots] == [0, -1, 1]
    sure = strip([effect(half_width=0.0)])
    assert sure[0].x == strip_place(CLEAREST)


def test_claims_on_the_same_numbers_are_one_effect_and_other_units_are_in_hundredths():
    common = {"paper": "p", "kind": "empirical", "half_width": 0.1, "printed_effect": 0.2}
    claims = pd.DataFrame(
        [
            {**common, "left": 0.5, "right": 0.2, "margin": 0.01, "unit": "", "evidence": "a"},
            {**common, "left": 0.5, "right": 0.2, "margin": 0.01, "unit": "", "evidence": "a"},
            {**common, "left": 5.0, "right": 2.0, "margin": 1.0, "unit": "%", "evidence": "b"},
            {**common, "left": 5.0, "right": 2.0, "margin": 1.0, "unit": "%", "evidence": None},
            {**common, "left": 0.7, "right": 0.6, "margin": 0.0, "unit": "rad", "evidence": "c"},
        ]
    )
    found = effects_of(claims)
    assert found["effect"].tolist() == pytest.approx([30.0, 3.0, 10.0])
    assert found["margin"].tolist() == pytest.approx([1.0, 1.0, 0.0])
