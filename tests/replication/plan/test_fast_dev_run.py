"""A rehearsal takes two steps of each training of a scale, without files or published weights."""

from pathlib import Path

import pytest

from replication.config.datasets import find, load_registry
from replication.config.recipe import TimmTraining
from replication.plan.catalog import load_catalog
from tests.conftest import ROOT, catalog_of

PAPERS = ["octic", "position", "shift", "variance"]
# What a training is cut down by; `version` is the miniature's.
CUT = {"schedule.steps", "schedule.planned_steps", "schedule.warmup_steps"}
CUT |= {"schedule.save_teacher_steps", "batch.size", "batch.micro"}
OF_A_CPU = {"precision", "compile"}
OF_FILES = {"data.dataset", "model.pretrained"}
OF_DEPTH = {"model.args.depth", "model.args.octic_depth"}


@pytest.fixture(scope="module")
def rehearsed():
    return load_catalog(ROOT, scale="full", fast_dev_run=True)


@pytest.mark.parametrize("scale", ["laptop", "full"])
def test_nothing_is_downloaded_or_placed_by_hand(scale):
    catalog = load_catalog(ROOT, scale=scale, fast_dev_run=True)
    for measurement in catalog.measurements.values():
        read = measurement.reads
        assert {info.source for info in read} <= {"made", "bundled"}
    assert all(run.recipe.model.published is None for run in catalog.runs.values())


@pytest.mark.parametrize("paper", PAPERS)
def test_each_training_takes_two_steps_and_each_that_has_none_takes_none(rehearsed, paper):
    """One that keeps teachers takes a step for each; segmenters that are published have weights."""
    registry = load_registry(ROOT / "configs" / "datasets.yaml")
    for name in rehearsed.paper(paper).recipes:
        run, printed = rehearsed.paper(paper).run(name), rehearsed.paper(paper).printed(name)
        trained = printed.steps(find(printed.data.dataset, registry).train_images) > 0
        wanted = {2, 10} if trained or printed.task == "segmentation" else {0}
        assert run.recipe.steps(run.dataset.train_images) in wanted, name


@pytest.mark.parametrize("paper", PAPERS)
def test_models_transforms_losses_and_optimisers_are_the_papers(rehearsed, paper):
    """But for the depth of Vision Transformers; only those that timm's names tell have one."""
    at_scale = rehearsed.paper(paper)
    for name in at_scale.recipes:
        expected = CUT | OF_FILES | OF_A_CPU
        if isinstance(at_scale.recipe(name), TimmTraining):
            expected |= OF_DEPTH
        assert set(at_scale.changes(name)) <= expected, name


def test_on_a_gpu_precision_and_compilation_are_the_papers(rehearsed):
    on_gpu = load_catalog(ROOT, scale="full", fast_dev_run=True, device="cuda")
    assert (rehearsed.scale.device, on_gpu.scale.device) == ("cpu", "cuda")
    for name in ("vit-l", "dinov2-vit-l"):
        paper = on_gpu.paper("octic")
        assert not OF_A_CPU & set(paper.changes(name))


def test_all_that_is_made_at_full_scale_is_rehearsed(rehearsed):
    assert {a.target for a in catalog_of("full").artifacts} == {
        a.target for a in rehearsed.artifacts
    }


def test_what_is_rehearsed_lies_apart_and_judges_nothing(rehearsed):
    """Of one record that both have, only the place differs: it needs neither data nor training."""
    full = catalog_of("full")
    assert rehearsed.results == Path("results/full-fast_dev_run")
    assert not {*rehearsed.records} & {*full.records}
    assert all(run.seed == 0 for run in rehearsed.runs.values())
    assert all(paper.claims == () for paper in rehearsed.papers.values())
    for artifact in rehearsed.artifacts:
        assert "mean nothing" in artifact.note
        trained = [cell for cell in artifact.cells if rehearsed.runs_of(cell)]
        assert not any(cell.comparable for cell in trained)


def test_a_command_repeats_the_rehearsal(rehearsed):
    table = rehearsed.paper("variance").artifacts["table5"]
    assert table.command == "snakemake variance_table5 --config scale=full fast_dev_run=True"


def test_no_job_asks_for_the_time_or_the_memory_of_a_training(rehearsed):
    asked = [rehearsed.resources(run) for run in rehearsed.runs.values()]
    assert max(each.runtime for each in asked) <= 60
    assert max(each.mem_mb for each in asked) <= 8000
