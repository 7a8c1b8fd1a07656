"""Repetitions of an experiment fail as rarely as stated, and changed numbers do not pass."""

import math

import numpy as np
import pytest
from scipy import stats

from replication.claims.comparison import read_cells, summarize
from replication.claims.judge import Side
from replication.claims.repetition import (
    FALSE_ALARM,
    beyond_chance,
    difference,
    trainings_allowed,
    trainings_beyond,
)
from replication.plan.catalog import load_catalog
from replication.publishing.compare import Outcome, compare


def side(*values):
    summary = summarize(values)
    return Side(summary.measured, math.nan if summary.std is None else summary.std, len(values))


def test_numbers_of_several_seeds_are_compared_by_welchs_test():
    left, right = (80.0, 81.0, 84.0), (70.0, 75.0, 71.0, 77.0)
    before, after = side(*left), side(*right)
    p_value = difference(before, after, 0.0).p_value(before.value - after.value)
    assert p_value == pytest.approx(stats.ttest_ind(left, right, equal_var=False).pvalue)


@pytest.mark.parametrize("alone_first", [True, False])
def test_a_single_run_beside_several_seeds_is_one_more_of_them(alone_first):
    """A t test of two samples with equal variances, of which one has a single value."""
    several, alone = (80.0, 81.0, 84.0), 90.0
    sides = [side(alone), side(*several)]
    known = difference(*(sides if alone_first else sides[::-1]), 0.0)
    expected = stats.ttest_ind(several, [alone], equal_var=True).pvalue
    assert known.p_value(sides[0].value - sides[1].value) == pytest.approx(expected)


def test_seeds_with_equal_numbers_differ_by_a_normal_of_the_published_spread():
    before, after = side(80.0, 80.0), side(70.0, 70.0)
    known = difference(before, after, 4.0)
    assert known.p_value(10.0) == pytest.approx(2 * stats.norm.sf(10, scale=4))
    assert difference(before, after, 0.0) is None


def test_nothing_is_known_of_the_difference_of_single_runs():
    assert difference(side(80.0), side(70.0), 4.0) is None


def test_one_changed_number_of_a_thousand_is_found_and_no_other():
    rng = np.random.default_rng(0)
    p_values = [*rng.uniform(size=999), 1e-7]
    assert [*np.flatnonzero(beyond_chance(p_values))] == [999]


@pytest.mark.parametrize(("trainings", "families"), [(1, 1), (4, 60), (12, 60), (180, 60)])
def test_so_many_trainings_are_allowed_that_chance_seldom_gives_more(trainings, families):
    def probability_of_more(count):
        return sum(
            math.comb(trainings, more) * 0.05**more * 0.95 ** (trainings - more)
            for more in range(count + 1, trainings + 1)
        )

    allowed = trainings_allowed(trainings, families)
    assert probability_of_more(allowed) <= FALSE_ALARM / families
    assert allowed == 0 or probability_of_more(allowed - 1) > FALSE_ALARM / families


def test_dependent_numbers_of_one_training_count_once():
    """Trainings lie beyond their interval as rarely as 5 %, also if all their numbers are equal."""
    p_values = np.random.default_rng(0).uniform(size=2000)
    same = [(str(training), p) for training, p in enumerate(p_values) for _ in range(10)]
    assert trainings_beyond(same) == (sum(p_values * 10 < 0.05), 2000)
    others = np.random.default_rng(1).uniform(size=20_000)
    apart = [(str(index // 10), p) for index, p in enumerate(others)]
    beyond, trainings = trainings_beyond(apart)
    assert trainings == 2000
    assert 0.035 < beyond / trainings < 0.055


def outcome_of(catalog, published):
    """The published numbers against those of the catalogue's results."""
    cells = [
        cell for artifact in catalog.artifacts for cell in compare(artifact, catalog, published)
    ]
    both = [cell for cell in cells if cell.agreement not in ("missing here", "new here")]
    return Outcome(altered=[], cells=both, numbers=both, claims=[], not_made=[], restored=0)


@pytest.fixture
def rewritten(root, tmp_path):
    """A copy of a scale's published CSV files, in which each row was changed."""

    def write(scale, folder, change):
        for path in (root / "results" / "published" / scale).glob("*/*.csv"):
            if path.name == "training_logs.csv":
                continue
            cells = read_cells(path).apply(change, axis=1)
            target = tmp_path / folder / scale / path.parent.name / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            cells.to_csv(target, index=False)
        return tmp_path / folder

    return write


def of_seeds(chosen):
    """Change a row to what it says of some of its first six seeds, or to nothing if it has less."""

    def change(row):
        values = [float(value) for value in row["by_seed"].split()]
        summary = summarize([values[seed] for seed in chosen] if len(values) >= 6 else [])
        row["measured"], row["n_seeds"] = summary.measured, summary.n_seeds
        row["std"] = summary.std
        return row

    return change


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 1])
def test_a_repetition_under_other_seeds_is_verified(root, rewritten, seeds):
    """Of six published seeds of each model that has as many, the first ones against others."""
    first, others = range(seeds), range(3, 3 + seeds)
    published = rewritten("laptop", "published", of_seeds(first)) / "laptop"
    here = rewritten("laptop", "here", of_seeds(others))
    outcome = outcome_of(load_catalog(root, scale="laptop", results_root=str(here)), published)
    assert sum(number.agreement != "same" for number in outcome.judged) > 30
    assert outcome.faults == {}


@pytest.mark.slow
def test_a_table_of_which_each_number_was_changed_fails(root, rewritten):
    """The models of variance's Table 6 are trained under one seed each."""

    def change(row):
        if (row["paper"], row["artifact"]) == ("variance", "table6"):
            row["measured"] *= 0.3
        return row

    here = rewritten("laptop", "here", change)
    catalog = load_catalog(root, scale="laptop", results_root=str(here))
    outcome = outcome_of(catalog, root / "results" / "published" / "laptop")
    assert [family.artifact for family in outcome.crowded] == ["variance_table6"]
    assert {number.artifact for number in outcome.beyond_chance} == {"variance_table6"}


@pytest.mark.slow
def test_numbers_of_another_recipe_are_no_repetition_even_if_they_agree(root, rewritten):
    def change(row):
        """Change the recipe of trained models, and of settings, which no model is trained for."""
        if (row["paper"], row["artifact"]) in {("variance", "table6"), ("shift", "tableA2")}:
            row["recipe_hash"] = row["recipe_hash"] and "0" * len(row["recipe_hash"])
        return row

    here = rewritten("laptop", "here", change)
    catalog = load_catalog(root, scale="laptop", results_root=str(here))
    outcome = outcome_of(catalog, root / "results" / "published" / "laptop")
    changed = [number for number in outcome.numbers if number.other_recipe]
    assert {(number.artifact, number.agreement) for number in changed} == {
        ("variance_table6", "same")
    }
    assert outcome.faults == {"numbers of other recipes": len(changed)}
