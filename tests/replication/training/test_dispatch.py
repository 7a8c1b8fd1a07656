"""A recipe names the code that trains it; where that cannot be imported, a sentence says why."""

import pytest

from replication.config.recipes.classification import ClassificationRecipe
from replication.training.dispatch import builder_of, engine_of
from replication.training.loop import train
from replication.training.model_factory import build_model
from vitrail.errors import VitrailError


def test_a_classifier_is_trained_by_our_own_loop(recipe):
    assert engine_of(recipe).train is train
    assert builder_of(recipe).build_model is build_model
    assert builder_of(recipe).image_shape(recipe) == (3, 8, 8)


def test_an_engine_that_cannot_be_imported_is_one_sentence(recipe, monkeypatch):
    monkeypatch.setattr(ClassificationRecipe, "engine", "vitrail.no_such_engine")
    with pytest.raises(VitrailError, match=r"no_such_engine cannot be imported .*requirements"):
        engine_of(recipe)
