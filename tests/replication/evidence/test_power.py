"""Half-widths and numbers of seeds, against simulation and closed forms."""

import math

import numpy as np
import pytest

from replication.evidence.claims import Side
from replication.evidence.power import needed, spread, visible


def test_the_visible_effect_is_the_half_width_of_the_interval():
    random = np.random.default_rng(0)
    samples = random.normal(scale=2.0, size=(20_000, 6))
    half = visible(1.0, 6) * samples.std(axis=1, ddof=1)
    covered = (np.abs(samples.mean(axis=1)) <= half).mean()
    assert covered == pytest.approx(0.95, abs=0.005)
    assert visible(2.0, 1) == math.inf


def test_the_needed_seeds_are_the_fewest_that_see_the_effect():
    seeds = needed(2.0, 1.0)
    assert visible(2.0, seeds) <= 1.0 < visible(2.0, seeds - 1)
    assert needed(2.0, -1.0) == seeds
    assert needed(100.0, 0.1) is None


def test_the_spread_of_pairs_is_that_of_their_differences_else_both_add_up():
    ours, base = (92.0, 84.0, 88.5), (90.5, 82.0, 86.5)
    left = Side(88.2, 4.0, 3, by_seed=ours)
    right = Side(86.3, 4.3, 3, by_seed=base, recipe_hash="abcd1234")
    assert spread(left, right) == pytest.approx(np.std(np.subtract(ours, base), ddof=1))
    unpaired = spread(left._replace(by_seed=()), right._replace(by_seed=()))
    assert unpaired == pytest.approx(math.hypot(4.0, 4.3))
    assert spread(left._replace(by_seed=()), Side(100.0, 0.0, 1)) == 4.0
    assert math.isnan(spread(Side(1.0, math.nan, 1), Side(2.0, math.nan, 1)))
