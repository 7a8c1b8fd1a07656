"""Scale `rehearsal` takes two steps of the papers' trainings, without data or published weights."""

import pytest

from replication.config.datasets import load_registry
from tests.checkout import ROOT
from tests.conftest import catalog_of

PAPERS = ["octic", "position", "shift", "variance"]
# What a training is cut down by; `version` is the miniature's, sha256 that of the same file.
CUT = {"schedule.epochs", "schedule.warmup_epochs", "schedule.steps", "schedule.warmup_steps"}
CUT |= {"schedule.planned_steps", "schedule.save_teacher_steps", "batch.size", "batch.micro"}
OF_A_CPU = {"precision", "compile"}
OF_FILES = {"data.dataset", "model.pretrained"}
OF_THE_LARGEST = {"model.args.depth", "model.args.octic_depth"}


@pytest.fixture(scope="module", params=["rehearsal", "rehearsal-gpu"])
def catalog(request):
    return catalog_of(request.param)


@pytest.mark.parametrize("paper", PAPERS)
def test_nothing_is_downloaded_or_placed_by_hand(catalog, paper):
    for artifact in catalog.paper(paper).artifacts.values():
        for measurement in artifact.measurements:
            read = catalog.measurement_node(measurement).reads
            assert {info.source for info in read} <= {"made", "bundled"}
        for run in artifact.runs:
            assert run.recipe.model.published is None


@pytest.mark.parametrize("paper", PAPERS)
def test_each_training_takes_a_few_steps_and_each_that_has_none_takes_none(catalog, paper):
    registry = load_registry(ROOT / "configs" / "datasets.yaml")
    for name in catalog.paper(paper).recipes:
        run, printed = catalog.paper(paper).run(name), catalog.paper(paper).printed(name)
        trained = printed.steps(registry[printed.data.dataset].train_images) > 0
        evaluated = printed.task == "segmentation"  # of published weights, which there are not here
        steps = run.recipe.steps(run.info.train_images)
        assert 2 <= steps <= 10 if trained or evaluated else steps == 0


@pytest.mark.parametrize("paper", PAPERS)
def test_models_transforms_losses_and_optimisers_are_the_papers(catalog, paper):
    at_scale = catalog.paper(paper)
    for name in at_scale.recipes:
        expected = CUT | OF_FILES | (OF_A_CPU if catalog.scale.device == "cpu" else set())
        if any(size in at_scale.recipe(name).model.name for size in ("large", "huge")):
            expected |= OF_THE_LARGEST
        assert set(at_scale.changes(name)) <= expected, name


@pytest.mark.parametrize("paper", PAPERS)
def test_every_artifact_that_needs_a_training_is_rehearsed(catalog, paper):
    full = catalog_of("full").paper(paper)
    trained = {name for name, artifact in full.artifacts.items() if artifact.runs}
    assert trained <= set(catalog.paper(paper).artifacts)
