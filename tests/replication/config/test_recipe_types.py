"""A paper brings a kind of training of its own: a dataclass of fields, found where it lies."""

import shutil
from dataclasses import dataclass
from typing import ClassVar

import pytest

import replication
from replication import papers
from replication.config import recipe_types as kinds
from replication.config.recipe import Training
from replication.config.recipe_types import KINDS, kind_of_paper
from replication.config.schema import parse
from replication.plan.module_digest import counts
from tests.conftest import FIFTH_PAPER
from vitrail.errors import VitrailError

FIELDS = {
    "model": {"name": "template_mlp"},
    "data": {"dataset": "digits", "image_size": 8},
    "optimizer": {"lr": 1e-2},
    "schedule": {"epochs": 3},
    "batch": {"size": 64, "micro": 64},
}


@dataclass(frozen=True)
class Distillation:
    """Fields of a kind."""

    task: ClassVar[str] = "distillation"
    teacher: str
    temperature: float = 2.0
    sides: tuple[int, int] = (1, 2)

    def __post_init__(self):
        if self.temperature <= 0:
            raise ValueError("temperature must be above 0")


@pytest.fixture
def kind():
    return kind_of_paper(Distillation)


def test_the_kinds_of_the_apparatus_are_found_by_their_task():
    assert KINDS.keys() >= {"classification", "segmentation", "self_supervision"}
    assert all(issubclass(kind, Training) for kind in KINDS.values())


def test_a_papers_kind_is_found_without_being_listed(tmp_path, monkeypatch):
    shutil.copytree(FIFTH_PAPER / "own_training" / "apparatus", tmp_path / "papers" / "brought")
    monkeypatch.setattr(replication, "__path__", [str(tmp_path), *replication.__path__])
    monkeypatch.setattr(papers, "__path__", [str(tmp_path / "papers"), *papers.__path__])
    found = kinds._by_task()
    assert found.keys() - KINDS == {"distraction"}
    assert found["distraction"].objective == "replication.papers.brought.training"
    shutil.copytree(tmp_path / "papers" / "brought", tmp_path / "papers" / "twice")
    with pytest.raises(
        VitrailError, match=r"'distraction' already, in replication\.papers\.brought\.recipe"
    ):
        kinds._by_task()


def test_a_papers_kind_has_its_fields_and_those_of_every_training_over_epochs(kind):
    recipe = parse(kind, {**FIELDS, "teacher": "big", "sides": [3, 4]}, "recipes.yaml")
    assert (recipe.task, recipe.teacher, recipe.temperature) == ("distillation", "big", 2.0)
    assert recipe.sides == (3, 4)
    assert recipe.steps(train_images=640) == 30
    again = kind.model_validate_json(recipe.model_dump_json())
    assert again == recipe
    assert again.hash == recipe.hash != recipe.model_copy(update={"teacher": "small"}).hash


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "'teacher' is missing"),
        ({"teacher": "big", "temprature": 1.0}, "'temprature'; did you mean 'temperature'"),
        ({"teacher": "big", "temperature": "hot"}, "'temperature' is 'hot'"),
        ({"teacher": "big", "temperature": -1.0}, "temperature must be above 0"),
    ],
)
def test_a_wrong_recipe_of_a_papers_kind_is_refused(kind, changes, sentence):
    with pytest.raises(VitrailError, match=sentence):
        parse(kind, {**FIELDS, **changes}, "recipes.yaml")


def test_a_field_that_every_recipe_has_is_refused():
    @dataclass(frozen=True)
    class Clashing:
        task: ClassVar[str] = "clashing"
        schedule: int = 3

    with pytest.raises(VitrailError, match="a recipe has 'schedule' already"):
        kind_of_paper(Clashing)


def test_no_number_depends_on_the_modules_of_fields():
    """They decide by the values that the recipe's hash holds: a new field makes nothing due."""
    assert not any(counts(kind.__module__) for kind in KINDS.values())
    assert not counts("replication.papers.template.recipe")
    assert counts("replication.training.custom_training")
    assert counts("replication.epoch_length")
