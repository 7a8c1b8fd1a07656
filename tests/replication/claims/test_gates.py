"""Each gate closes where it should, and only there."""

import pytest

from replication.claims.gates import closed, printed_effect
from replication.config.claims import Claim
from replication.config.paper import Printed
from replication.config.tuning import TuningResult

RATES = {1e-3: 60.0, 3e-3: 80.0, 1e-2: 70.0}


def result(name="swin", once=80.0, twice=80.5, rates=RATES, **fields):
    defaults = {
        "dataset": "digits",
        "baselines": {"1-NN": 50.0, "20-NN": 60.0},
        "chance": 10.0,
        "images": 1000,
    }
    return TuningResult(
        searched=name, rates=rates, once=once, twice=twice, **{**defaults, **fields}
    )


def claim(relation="above"):
    place = {"artifact": "table1", "row": "A", "column": "x"}
    return Claim(
        id="better", statement="A", source="p. 1", left=place, relation=relation, right=place
    )


def printed(*values):
    return [Printed(value=value, spread=spread, source="p. 1") for value, spread in values]


def why(*models, relation="above", numbers=()):
    return closed(claim(relation), models, printed(*numbers))


def test_two_trained_models_of_one_grid_above_the_pixel_baselines_are_tested():
    assert why(result(), result("a_swin", 82.0, 82.9)) == ""


def test_a_model_without_a_search_closes_it():
    assert "no search" in why(result(), None)


def test_another_grid_closes_it():
    assert "grids" in why(result(), result(rates={1e-3: 60.0, 3e-3: 80.0, 3e-2: 70.0}))


@pytest.mark.parametrize(("twice", "short"), [(79.0, False), (81.0, False), (81.1, True)])
def test_a_model_that_gains_more_than_a_point_from_twice_the_steps_closes_it(twice, short):
    assert ("training is short" in why(result(), result(twice=twice))) is short


# Of 1,000 images at one in ten the standard error is 0.95 points.
@pytest.mark.parametrize(("once", "chance"), [(12.8, True), (12.9, False)])
def test_a_model_within_three_standard_errors_of_chance_closes_it(once, chance):
    models = (result(), result("lost", once, once, baselines={}))
    assert ("is at chance" in why(*models)) is chance


def test_it_is_closed_where_both_models_are_below_the_pixels_and_open_where_one_is_above():
    below, above = result("vit", 59.0, 59.0), result("i8", 61.0, 61.0)
    assert "20-NN on pixels has 60.0 %, and vit 59.0 %" in why(below, below)
    assert why(below, above) == why(above, below) == ""


def test_a_printed_effect_below_its_own_spread_closes_it():
    numbers = ((85.5, "0.3"), (85.2, "0.4"))  # 0.3 with a spread of 0.5
    assert "below its own printed spread" in why(result(), result(), numbers=numbers)
    assert why(result(), result(), numbers=((86.5, "0.3"), (85.2, "0.4"))) == ""
    assert why(result(), result(), numbers=((85.5, ""), (85.2, "0.4"))) == ""
    assert why(result(), result(), relation="at least", numbers=numbers) == ""


def test_a_printed_effect_needs_two_numbers():
    assert printed_effect(printed((85.5, "3"), (85.0, "4"))) == (0.5, 5.0)
    assert printed_effect(printed((85.5, "3"))) is None
    assert printed_effect(printed((85.5, ""), ("Inconsistent", ""))) is None
