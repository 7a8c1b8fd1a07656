"""Trials are ordinary runs on a part of the training images, and recipes take the best rate."""

import csv

import pytest

from replication.config.tuning import (
    BASELINE,
    COLUMNS,
    Trial,
    add_found,
    images_digest,
    read_found,
)
from replication.plan.catalog import load_catalog
from replication.plan.search_table import COLUMNS as LENGTHS
from replication.records.nodes import RenderingNode
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
        add_found(about.searched_path, "laptop", dict(zip(trials[rate], scores, strict=True)))
    trials = paper(checkout).searches.longer_trials(name, recipe, info) if longer else ()
    add_found(about.searched_path, "laptop", dict(zip(trials, longer, strict=True)))


def test_before_its_search_ends_a_recipe_keeps_the_rate_that_is_written(checkout):
    find(checkout, "wide", {rate: HELD_OUT[rate] for rate in (1e-3, 1e-2)})
    assert paper(checkout).recipe("wide").optimizer.lr == 1e-2
    assert paper(checkout).tuning_result("wide") is None


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


def test_the_searched_rate_decides_the_hash_of_the_recipe_and_not_that_of_its_trials(checkout):
    before = paper(checkout)
    written = before.recipe("wide").hash
    find(checkout, "wide")
    after = paper(checkout)
    assert after.recipe("wide").hash != written
    first, second = (
        {
            (trial, score.measurement.path)
            for trial, score in about.trials.items()
            if (trial.recipe, trial.length) == ("wide", 1)
        }
        for about in (before, after)
    )
    assert first == second
    assert len(first) == 6


def test_what_was_found_for_another_recipe_does_not_count(checkout):
    find(checkout, "wide")
    recipes = checkout / "configs" / "papers" / "template" / "recipes.yaml"
    recipes.write_text(recipes.read_text().replace("{epochs: 1}", "{epochs: 2}"))
    assert paper(checkout).searched_rate("wide") is None


def test_a_result_has_the_means_at_both_lengths_and_the_pixel_baselines(checkout):
    find(checkout, "wide", longer=(72.0, 71.0))
    about = paper(checkout)
    _, info = about.searched("wide")
    for rule, score in (("1-NN", 97.0), ("20-NN", 96.0)):
        trial = Trial(BASELINE + rule, info.name, images_digest(info), 1, 0.0, 100)
        add_found(about.searched_path, "laptop", {trial: score})
    result = paper(checkout).tuning_result("wide")
    assert result.rates == {1e-3: 55.0, 3e-3: 70.0, 1e-2: 69.5}
    assert (result.once, result.twice) == (70.0, 71.5)
    assert result.baseline == ("1-NN", 97.0)
    assert (result.chance, result.images) == (10.0, 2 * 240)  # a fifth of 1,198 digits


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
    for tried in (trial, long, trial):
        add_found(path, "laptop", {tried: 71.25})
    add_found(path, "small", {trial: 1.0})
    assert read_found(path) == dict.fromkeys((trial, long), 71.25)
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
    assert recipe.on_part("tuning").data.part == "tuning"
    assert recipe.on_part("tuning").hash != recipe.hash
    assert recipe.on_part("all").hash == recipe.hash
    images = 6400
    assert recipe.longer(2).steps(images) == 2 * recipe.steps(images)
    assert recipe.longer(1) == recipe


def test_a_trial_is_a_run_of_its_rate_and_length_on_a_part_of_the_training_images(checkout):
    find(checkout, "wide")
    catalog = load_catalog(checkout, scale="laptop")
    about = catalog.paper("template")
    written, _ = about.searched("wide")
    trials = {trial: score for trial, score in about.trials.items() if trial.recipe == "wide"}
    assert len(trials) == 2 * (3 + 1)
    for trial, (measurement, key) in trials.items():
        run = measurement.run
        assert catalog.node(run.record).run == run
        assert run.recipe == written.with_rate(trial.rate).longer(trial.length).on_part("tuning")
        assert (run.dataset.part, run.dataset.train_images) == ("tuning", 958)
        assert run.seed == measurement.seed == trial.seed
        assert run.dataset.val_images == 240
        assert key == "top1"
    twice = {trial.rate for trial in trials if trial.length == 2}
    assert twice == {about.recipe("wide").optimizer.lr}
    assert len({score.measurement.run.home for score in trials.values()}) == 3 + 1


def test_a_search_is_a_target_of_its_own_and_no_part_of_all(checkout):
    catalog = load_catalog(checkout, scale="laptop")
    table = catalog.paper("template").search
    assert catalog.target("template_search").artifacts == (table,)
    for name, target in catalog.targets.items():
        assert (table in target.artifacts) == (name == "template_search")
    assert not set(catalog.target("template_search").files) & set(catalog.target("all").files)
    report = catalog.node(catalog.report)
    assert not set(report.inputs) & set(table.records)
    assert not set(catalog.said.trainings) & {run.record for run in catalog.runs_of(table)}
    rendering = catalog.node(catalog.rendering(table))
    assert isinstance(rendering, RenderingNode)
    assert {cell.column for cell in rendering.artifact.cells} == {LENGTHS[1]}
    assert "template_search" not in load_catalog(checkout, scale="full").targets


def test_a_recipe_that_starts_from_others_weights_is_not_searched(checkout):
    recipes = checkout / "configs" / "papers" / "template" / "recipes.yaml"
    start = "narrow: {model: {weights_from: wide, "
    recipes.write_text(recipes.read_text().replace("narrow: {model: {", start))
    with pytest.raises(VitrailError, match="has seen the images that would be held out"):
        paper(checkout).trials  # noqa: B018


@pytest.mark.parametrize(("dataset", "judged"), [("digits", False), ("two-pieces", True)])
def test_a_start_from_another_dataset_is_judged_by_the_search_of_its_own(checkout, dataset, judged):
    """From its own dataset, by that of its start, which none covers here."""
    folder = checkout / "configs" / "papers" / "template"
    (folder / "scales" / "laptop.yaml").write_text(SEARCHES.replace(', narrow: "narrow"', ""))
    recipes = folder / "recipes.yaml"
    start = f"    wild: {{model: {{weights_from: narrow}}, data: {{dataset: {dataset}}}}}\n"
    recipes.write_text(recipes.read_text().replace("recipes:\n", f"{start}recipes:\n"))
    find(checkout, "wide", longer=(70.0, 71.0))
    about = paper(checkout)
    assert about.tuning_result("wide") is not None
    assert about.tuning_result("wild") == (about.tuning_result("wide") if judged else None)


def test_a_search_judges_no_recipe_of_another_length_on_its_dataset(checkout):
    folder = checkout / "configs" / "papers" / "template"
    longer = "recipes: {narrow: {schedule: {epochs: 2}}}\n"
    together = SEARCHES.replace('wide: "wi*", narrow: "narrow"', 'wide: "*"')
    (folder / "scales" / "laptop.yaml").write_text(together)
    find(checkout, "wide", longer=(70.0, 71.0))
    alike = paper(checkout).tuning_result("narrow")
    assert alike is not None
    assert alike == paper(checkout).tuning_result("wide")
    (folder / "scales" / "laptop.yaml").write_text(together + longer)
    about = paper(checkout)
    assert about.tuning_result("wide") == alike
    assert about.tuning_result("narrow") is None
    assert about.recipe("narrow").optimizer.lr == about.recipe("wide").optimizer.lr


def test_an_artifact_may_not_be_called_as_the_table_of_searches(checkout):
    path = checkout / "configs" / "papers" / "template" / "artifacts.yaml"
    path.write_text(path.read_text().replace("  table1:", "  search:"))
    (path.parent / "claims.yaml").unlink()
    with pytest.raises(VitrailError, match="rename the artifact"):
        paper(checkout)
