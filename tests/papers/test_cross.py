"""The cross table has every family, at scale study trained alike, else of published weights."""

import csv
import re

import pytest

from replication.config.weights import REGISTRY, find_weights, load_weights_registry
from replication.plan.catalog import load_catalog
from replication.training.model_factory import create
from tests.conftest import ROOT


def cross(scale, **settings):
    return load_catalog(ROOT, scale=scale, **settings).paper("cross")


@pytest.fixture(scope="module")
def study():
    return cross("study")


def families(paper):
    return [name for name in paper.recipes if not paper.without(name)]


def test_every_recipe_has_a_row_and_every_row_all_columns(study):
    (table,) = study.artifacts.values()
    measured = [cell for cell in table.cells if cell.measurement]
    assert {cell.measurement.run.name for cell in measured} == {*families(study)}
    assert {cell.row for cell in measured} == {*families(study)}
    assert len(measured) == len(families(study)) * len(table.columns)
    assert len(table.rows) == len(study.recipes)


def test_every_family_of_the_four_papers_has_a_row(study):
    """By the module that registers it: plain and adaptive, octic and flip, any embedding."""
    names = {study.recipe(name).model.name for name in families(study)}
    for family in (
        *("swin_tiny", "a_swin_tiny", "harmonic_swin", "swinv2", "a_swinv2", "cvt_13", "a_cvt_13"),
        *("mvitv2", "a_mvitv2", "canonical_vit", "octic_h8", "octic_i8", "octic_d8", "h2_", "d2_"),
        *("position_vit", "vit_small"),
    ):
        assert [name for name in names if name.startswith(family)], family


def test_rows_of_scale_study_are_trained_alike(study):
    first, *others = (study.recipe(name) for name in families(study))
    for recipe in others:
        same = {"model": first.model, "optimizer": first.optimizer}
        assert recipe.model_copy(update=same) == first
    for name in families(study):
        model = create(study.recipe(name).model, classes=6)
        assert 0 < sum(parameter.numel() for parameter in model.parameters()) < 110_000, name


@pytest.mark.parametrize("scale", ["full", "workstation-imagenet"])
def test_published_rows_are_evaluated_with_weights_of_the_registry(scale):
    paper = cross(scale, extensions=True)
    registry = load_weights_registry(ROOT / REGISTRY)
    (table,) = paper.artifacts.values()
    measured = {cell.row for cell in table.cells if cell.measurement}
    assert 10 <= len(measured) < len(table.rows)
    for run in table.runs:
        assert run.recipe.steps(run.info.train_images) == 0
        assert run.info.name == "imagenet"
        assert find_weights(run.recipe.model.published, registry)


def test_the_table_is_no_part_of_full_scale_unless_asked_for():
    assert not cross("full").artifacts
    assert cross("workstation-imagenet").artifacts


def test_what_is_published_is_rehearsed():
    rehearsed, published = (
        {run.name for run in cross(scale, extensions=True).artifacts["table"].runs}
        for scale in ("rehearsal", "workstation-imagenet")
    )
    assert rehearsed == published


def test_no_scale_trains_a_family_with_another_dataset_by_accident():
    for scale in ("gpu", "workstation", "laptop"):
        assert not cross(scale, extensions=True).artifacts


def test_the_numbers_on_the_page_are_those_published():
    text = (ROOT / "docs" / "cross.md").read_text().partition("## What came out")[2]
    section = text.partition("\n## ")[0]
    with (ROOT / "results" / "published" / "study" / "cross" / "table.csv").open() as file:
        cells = [row for row in csv.DictReader(file) if row["measured"]]
    shown = {f"{float(cell['measured']):.1f}" for cell in cells}
    shown |= {number for cell in cells for number in cell["by_seed"].split()}
    by_size = {
        factor: [
            {cell["row"]: float(cell["measured"]) for cell in cells if cell["column"] == column}
            for column in (f"{factor} / UP(P)", f"{factor} / UP(P)/sqrt(k)")
        ]
        for factor in ("1.5 times the size", "2 times the size")
    }
    changes = [abs(other[row] - up[row]) for up, other in by_size.values() for row in other]
    shown |= {"1.5", f"{max(changes):.1f}"}
    shown |= {"16.7", "86.68"}  # chance, and what Table 2 of the shift paper prints
    told = re.findall(r"\d+\.\d+", section)
    assert len(told) > 15
    assert {*told} <= shown
