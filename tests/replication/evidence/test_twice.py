"""A model compared with itself differs as often as chance has it, and no more counts as a fault."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from replication.evidence.twice import Twice, against_themselves


def table(*rows):
    """Tidy cells of numbers by seed, each of a recipe of its own."""
    return pd.DataFrame(
        {
            "recipe_hash": [f"{at:08x}" for at in range(len(rows))],
            "metric": "top-1 accuracy",
            "dataset": "digits",
            "by_seed": [" ".join(map(repr, map(float, row))) for row in rows],
        }
    )


def test_equal_models_differ_in_about_five_percent_of_the_comparisons():
    random = np.random.default_rng(0)
    found = against_themselves([table(*random.normal(size=(4000, 6)))])
    assert found.compared == 4000
    # Welch's interval of two means of three is a little too wide.
    assert 0.02 < found.differing / found.compared < 0.06
    assert found.is_expected


def test_a_model_whose_seeds_fall_apart_is_found():
    assert against_themselves([table([1.0, 1.1, 0.9, 5.0, 5.1, 4.9])]) == Twice(1, 1)


def test_a_number_in_several_tables_counts_once_and_few_seeds_do_not():
    cells = table([1.0, 2.0, 1.0, 2.0], [1.0, 2.0, 3.0])
    assert against_themselves([cells, cells]) == Twice(1, 0)
    assert against_themselves([cells.assign(recipe_hash="")]) == Twice(0, 0)


@pytest.mark.parametrize("compared", [1, 20, 100])
def test_more_than_chance_gives_once_in_a_hundred_is_not_expected(compared):
    most = int(scipy.stats.binom.ppf(0.99, compared, 0.05))
    assert Twice(compared, most).is_expected
    assert not Twice(compared, most + 1).is_expected
