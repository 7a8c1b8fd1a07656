"""What every paper's recipes must do at the laptop's scale, which changes the papers' models."""

import pytest

from replication.training.model_factory import create
from tests.conftest import catalog_of
from tests.papers.test_claims import PAPERS


@pytest.mark.parametrize("name", PAPERS)
def test_every_classifier_and_backbone_can_be_built(name):
    paper = catalog_of("laptop").paper(name)
    runs = [paper.run(recipe) for recipe in paper.recipes if not paper.without(recipe)]
    built = {
        (repr(run.recipe.model), run.dataset.classes): run.recipe.model
        for run in runs
        if run.recipe.task != "segmentation"
    }
    assert built
    for (_, classes), model in built.items():
        assert any(True for _ in create(model, classes).parameters())
