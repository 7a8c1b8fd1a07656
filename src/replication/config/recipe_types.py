"""The kinds of training, found by the modules that declare their fields.

A general kind is a module of `replication.config.recipes` with a subclass of `Training`. A paper
adds a kind of its own with two modules, which are found without a list:

- ``src/replication/papers/<paper>/recipe.py`` has a dataclass of the kind's hyperparameters
  (numbers, words and tuples of them); its ``task: ClassVar[str]`` is the name of the kind in
  ``recipes.yaml``. The hyperparameters are added to the fields of `EpochTraining`: model, data,
  augmentation, optimizer, schedule, batch and precision.
- ``src/replication/papers/<paper>/training.py`` has an `Objective`, the module that is trained: see
  `replication.training.custom_training`.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Union, get_type_hints

from pydantic import create_model, model_validator

import replication
from replication.config.recipe import EpochTraining, Training
from replication.config.schema import parse
from vitrail.errors import VitrailError, require_known

RECIPES = "replication.config.recipes"  # imported by name: planning may not import the engine


class PaperTraining(EpochTraining):
    """Base of the kinds of training that papers bring; `kind_of_paper` derives each kind."""

    engine: ClassVar[str] = "replication.training.custom_training"
    hub_task: ClassVar[str] = "image-classification"

    hyperparameters: ClassVar[type]  # the paper's dataclass
    objective: ClassVar[str]  # the module that has `Objective`

    @model_validator(mode="after")
    def _suits_the_paper(self) -> PaperTraining:
        names = [field.name for field in dataclasses.fields(self.hyperparameters)]
        self.hyperparameters(**{name: getattr(self, name) for name in names})  # may raise
        return self

    @property
    def code(self) -> tuple[str, ...]:
        """Return the code that trains it, as `Training.code`, with the paper's objective."""
        return (*super().code, f"{self.objective}:Objective")


def kind_of_paper(hyperparameters: type) -> type[PaperTraining]:
    """Make the recipe class of a paper's own kind of training from its dataclass.

    The dataclass `hyperparameters` may raise ValueError in ``__post_init__`` to refuse a recipe.
    Raises VitrailError if one of its fields has a name that all recipes have.
    """
    task: Any = hyperparameters.task  # type: ignore[attr-defined]
    types = get_type_hints(hyperparameters)
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(hyperparameters):
        if hasattr(PaperTraining, field.name) or field.name in PaperTraining.model_fields:
            raise VitrailError(
                f"{hyperparameters.__module__}: a recipe has '{field.name}' already; rename that "
                f"field of {hyperparameters.__name__}"
            )
        required = field.default is dataclasses.MISSING
        fields[field.name] = (types[field.name], ... if required else field.default)
    kind = create_model(
        hyperparameters.__name__,
        __base__=PaperTraining,
        __module__=hyperparameters.__module__,
        __doc__=hyperparameters.__doc__,
        task=(Literal[task], task),  # type: ignore[arg-type]  # known as the program runs
        **fields,
    )
    kind.hyperparameters = hyperparameters
    kind.objective = f"{hyperparameters.__module__.rpartition('.')[0]}.training"
    return kind


def _kinds() -> Iterator[type[Training]]:
    for file in sorted(Path(importlib.import_module(RECIPES).__path__[0]).glob("[!_]*.py")):
        module = importlib.import_module(f"{RECIPES}.{file.stem}")
        yield from (kind for kind in _defined_in(module) if issubclass(kind, Training))
    for file in sorted(Path(replication.__path__[0]).glob("papers/*/recipe.py")):
        module = importlib.import_module(f"replication.papers.{file.parent.name}.recipe")
        own = [kind for kind in _defined_in(module) if hasattr(kind, "task")]
        if not own:
            raise VitrailError(
                f"{file} has no dataclass with a `task`, the name of a kind of training; give it "
                "one, or rename the file"
            )
        yield from map(kind_of_paper, own)


def _defined_in(module: ModuleType) -> list[type]:
    values = vars(module).values()
    return [
        value for value in values if isinstance(value, type) and value.__module__ == module.__name__
    ]


def _by_task() -> dict[str, type[Training]]:
    found: dict[str, type[Training]] = {}
    for kind in _kinds():
        task = kind.model_fields["task"].default
        if task in found:
            raise VitrailError(
                f"{kind.__module__}: a kind of training is called '{task}' already, in "
                f"{found[task].__module__}; rename one"
            )
        found[task] = kind
    return found


KINDS: dict[str, type[Training]] = dict(sorted(_by_task().items()))
"""Every kind of training by its task's name."""

if TYPE_CHECKING:
    AnyRecipe = Training
else:
    AnyRecipe = Union[tuple(KINDS.values())]  # noqa: UP007 - as many as are found


def parse_recipe(values: Mapping[str, Any], where: str) -> AnyRecipe:
    """Validate `values` as a recipe of their `task`, which is classification by default.

    Raises VitrailError, which names the origin `where`, if the task is unknown or a value is wrong.
    """
    task = values.get("task", "classification")
    require_known(f"{where}: task", str(task), KINDS)
    return parse(KINDS[str(task)], values, where)
