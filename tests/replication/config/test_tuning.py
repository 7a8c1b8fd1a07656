"""Searched rates are taken from what was found, and models stand by it."""

import csv

import pytest

from replication.config.tuning import COLUMNS, FLOORS, Score, Trial, add_found, read_found, world_of
from replication.plan.catalog import load_catalog
from tests.conftest import catalog_of
from vitrail.errors import VitrailError

SEARCHES = """\
searches:
  - rates: [1.0e-3, 3.0e-3, 1.0e-2]
    of: {wide: "wi*", narrow: "narrow"}
"""
HELD_OUT = {1e-3: (50.0, 60.0), 3e-3: (71.0, 69.0), 1e-2: (60.0, 79.0)}  # means 55, 70, 69.5


@pytest.fixture
def checkout(small_checkout):
    """A checkout whose scale searches both recipes of its paper."""
    folder = small_checkout / "configs" / "papers" / "template"
    (folder / "scales" / "laptop.yaml").write_text(SEARCHES)
    return small_checkout


def paper(checkout):
    return load_catalog(checkout, scale="laptop").paper("template")


def find(checkout, name, held_out=HELD_OUT, longer=()):
    """Add the trials of a recipe to its search."""
    about = paper(checkout)
    recipe, info = about.searched(name)
    trials = about.searches.trials(name, recipe, info)
    for rate, scores in held_out.items():
        for trial, score in zip(trials[rate], scores, strict=True):
            add_found(about.searched_path, trial, Score(score, 1.0))
    trials = paper(checkout).searches.longer_trials(name, recipe, info) if longer else ()
    for trial, score in zip(trials, longer, strict=True):
        add_found(about.searched_path, trial, Score(score, 2.0))


def test_before_its_search_ends_a_recipe_keeps_the_rate_that_is_written(checkout):
    find(checkout, "wide", {rate: HELD_OUT[rate] for rate in (1e-3, 1e-2)})
    assert paper(checkout).recipe("wide").optimizer.lr == 1e-2
    assert paper(checkout).standing("wide") is None


def test_a_recipe_takes_the_rate_of_the_best_mean_and_says_where_from(checkout):
    find(checkout, "wide")
    about = paper(checkout)
    assert about.recipe("wide").optimizer.lr == 3e-3
    assert about.recipe("narrow").optimizer.lr == 1e-2  # it is not searched yet
    place = about.values("wide")["optimizer"].places["lr"]
    assert place.startswith(str(about.searched_path))


def test_of_equally_good_rates_the_lowest_is_taken(checkout):
    find(checkout, "wide", dict.fromkeys(HELD_OUT, (70.0, 70.0)))
    assert paper(checkout).recipe("wide").optimizer.lr == 1e-3


def test_the_searched_rate_decides_the_hash_and_the_setting_of_a_search_does_not_hold_it(checkout):
    before = paper(checkout)
    written = before.recipe("wide").hash
    find(checkout, "wide")
    after = paper(checkout)
    assert after.recipe("wide").hash != written
    settings = {
        trial.setting
        for about in (before, after)
        for trials in about.searches.trials("wide", *about.searched("wide")).values()
        for trial in trials
    }
    assert len(settings) == 1


def test_what_was_found_for_another_recipe_does_not_count(checkout):
    find(checkout, "wide")
    recipes = checkout / "configs" / "papers" / "template" / "recipes.yaml"
    recipes.write_text(recipes.read_text().replace("{epochs: 1}", "{epochs: 2}"))
    assert paper(checkout).searched_rate("wide") is None


def test_a_standing_has_the_means_at_both_lengths_and_the_floors(checkout):
    find(checkout, "wide", longer=(72.0, 71.0))
    about = paper(checkout)
    _, info = about.searched("wide")
    for rule, score in (("1-NN", 97.0), ("20-NN", 96.0)):
        trial = Trial(FLOORS + rule, info.name, world_of(info), 1, 0.0, 100)
        add_found(about.searched_path, trial, Score(score, 0.1))
    standing = paper(checkout).standing("wide")
    assert standing.rates == {1e-3: 55.0, 3e-3: 70.0, 1e-2: 69.5}
    assert (standing.once, standing.twice) == (70.0, 71.5)
    assert standing.floor == ("1-NN", 97.0)
    assert (standing.chance, standing.images) == (10.0, 2 * 240)  # a fifth of 1,198 digits


def test_a_recipe_of_its_own_search_is_not_covered_by_the_patterns_of_another(checkout):
    searches = paper(checkout).searches
    assert (searches.covering("wide"), searches.covering("narrow")) == ("wide", "narrow")
    assert searches.covering("width") == "wide"
    assert searches.covering("other") is None


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (SEARCHES.replace("wide:", "wde:"), "wde"),
        (SEARCHES.replace("wi*", "we*"), "we*"),
        (SEARCHES.replace("[1.0e-3, 3.0e-3, 1.0e-2]", "[1.0e-3, 3.0e-3]"), "rates"),
    ],
)
def test_a_wrong_search_is_refused(checkout, wrong, named):
    path = checkout / "configs" / "papers" / "template" / "scales" / "laptop.yaml"
    path.write_text(wrong)
    with pytest.raises(VitrailError, match=named.replace("*", r"\*")):
        paper(checkout)


def test_a_file_of_other_columns_is_refused(checkout, tmp_path):
    path = paper(checkout).searched_path
    path.write_text("recipe,rate\n")
    with pytest.raises(VitrailError, match="restore it with git checkout"):
        paper(checkout).recipe("wide")


def test_what_is_added_is_read_back(tmp_path):
    path = tmp_path / "searched.csv"
    trial = Trial("vit-l", "digits", "01234567", 2, 3e-3, 101)
    long = trial._replace(rate=0.00012345678)
    for tried in (trial, long):
        add_found(path, tried, Score(71.25, 12.3))
    assert read_found(path) == dict.fromkeys((trial, long), Score(71.25, 12.3))
    assert ",0.003," in path.read_text()
    with path.open(newline="") as file:
        assert tuple(next(csv.reader(file))) == COLUMNS


@pytest.mark.parametrize("kind", ["classification", "self_supervision", "segmentation"])
def test_every_kind_of_training_can_be_given_a_rate_and_be_prolonged(root, kind):
    catalog = catalog_of("laptop")
    recipe = next(run.recipe for run in catalog.runs.values() if run.recipe.task == kind)
    held: object = recipe.with_rate(0.125)
    for key in recipe.rate:
        held = held[key] if isinstance(held, dict) else getattr(held, key)
    assert held == 0.125
    images = 6400
    assert recipe.longer(2).steps(images) == 2 * recipe.steps(images)
    assert recipe.longer(1) == recipe
