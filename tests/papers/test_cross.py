"""The cross table has every family; its rows are of published weights."""

import pytest

from replication.config.weights import REGISTRY, find_weights, load_weights_registry
from tests.conftest import ROOT, catalog_of


@pytest.fixture(scope="module")
def full():
    """At full scale, where the table is made on request."""
    return catalog_of("full", extensions=True).paper("cross")


def test_every_recipe_that_is_not_left_out_has_a_row_with_all_columns(full):
    (table,) = full.artifacts.values()
    measured = [cell for cell in table.cells if cell.records]
    families = {name for name in full.recipes if not full.without(name)}
    assert {full.measurement_of(cell).run.name for cell in measured} == families
    assert len({cell.row for cell in measured}) == len(families)
    assert len(measured) == len(families) * len(table.columns)
    assert len(table.rows) == len(full.recipes)


def test_every_family_of_the_four_papers_has_a_recipe(full):
    """By the module that registers it: plain and adaptive, octic and flip, any embedding."""
    names = {full.recipe(name).model.name for name in full.recipes}
    for family in (
        *("swin_tiny", "a_swin_tiny", "harmonic_swin", "swinv2", "a_swinv2", "cvt_13", "a_cvt_13"),
        *("mvitv2", "a_mvitv2", "canonical_vit", "octic_h8", "octic_i8", "octic_d8", "h2_", "d2_"),
        *("position_vit", "vit_small"),
    ):
        assert [name for name in names if name.startswith(family)], family


def test_published_rows_are_evaluated_with_weights_of_the_registry(full):
    registry = load_weights_registry(ROOT / REGISTRY)
    (table,) = full.artifacts.values()
    measured = {cell.row for cell in table.cells if cell.records}
    assert 10 <= len(measured) < len(table.rows)
    for run in full.runs_of(table):
        assert run.recipe.steps(run.dataset.train_images) == 0
        assert run.dataset.name == "imagenet"
        assert find_weights(run.recipe.model.published, registry)


def test_the_table_is_no_part_of_full_scale_unless_asked_for():
    assert not catalog_of("full").paper("cross").artifacts
