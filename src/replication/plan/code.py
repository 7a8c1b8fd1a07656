"""What a number depends on in the code, as one digest.

Counted are the modules that measure, build the model, register what it is made of by name and open
the dataset, and all that these import, without comments, docstrings and the messages of errors. The
imports are read from the source (by grimp), so nothing is imported. A package decides whether a
module counts (`COUNTS`): planning, rendering and talking to people decide no number, and neither
does `PLUMBING`.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import grimp

import vitrail
from replication.plan.datasets import DatasetInfo
from replication.plan.recipe import AnyRecipe, SegmentationRecipe, Training
from replication.plan.source import code_of, config_strings, syntax_tree
from vitrail.naming import HUBS

SOURCES = Path(vitrail.__file__).parents[1]
PACKAGES = ("vitrail", "replication")
COUNTS = ("vitrail", "replication.engine", "replication.data")
PLUMBING = (
    "replication.data.layout",
    "replication.engine.checkpoint",
    "replication.engine.engine",
    "replication.engine.hub",
    "replication.engine.journal",
    "replication.engine.run_folder",
    "replication.engine.validation",
    "vitrail.errors",
    "vitrail.files",
    "vitrail.models",  # imports every family; a model counts where it is named
    "vitrail.naming",
    "vitrail.provenance",
    "vitrail.segmentation",  # itself, not the modules in it: it registers them all
)
REGISTERING = ("register_model", "register_module")  # decorators of timm and of mmengine
RENDERING = (
    "replication.evidence.comparison",
    "replication.evidence.tables",
    "vitrail.scores",
    "vitrail.style",
)


def measuring_digest(
    function: str, args: Any, recipe: AnyRecipe | None, datasets: Iterable[DatasetInfo]
) -> str:
    """Return the digest of the code behind a measurement.

    `args` of the ``module:function`` may name models; `recipe` is what it is taken on, if it is on
    something, trained or not; `datasets` are those whose images it may read.
    """
    return digest(modules_of_measurement(function, args, recipe, datasets))


def training_digest(recipe: AnyRecipe, dataset: DatasetInfo) -> str:
    """Return the digest of the code that trains a recipe."""
    return digest(modules_of_training(recipe, dataset))


def rendering_digest(draw: str | None) -> str:
    """Return the digest of the code that renders: what all share, and a figure's own function."""
    return digest(frozenset(RENDERING) | (closure([_module(draw)]) if draw else frozenset()))


def modules_of_measurement(
    function: str, args: Any, recipe: AnyRecipe | None, datasets: Iterable[DatasetInfo]
) -> frozenset[str]:
    """The modules behind a measurement, see `measuring_digest`."""
    roots = {_module(function), *_named_in(args), *_openers(datasets)}
    if recipe is not None:
        roots |= {recipe.builder, *_named_in(recipe)}
    return closure(roots)


def modules_of_training(recipe: AnyRecipe, dataset: DatasetInfo) -> frozenset[str]:
    """The modules behind a training, see `training_digest`."""
    return closure({recipe.engine, *_named_in(recipe), *_openers([dataset])})


def closure(roots: Iterable[str]) -> frozenset[str]:
    """Some modules and all that they import, directly or not, as far as they count."""
    return _closure(frozenset(roots))


def counts(module: str) -> bool:
    """Whether numbers can depend on a module."""
    return module.startswith(COUNTS) and module not in PLUMBING


@functools.cache
def digest(modules: frozenset[str]) -> str:
    """Return 16 hex digits of the SHA-256 of what these modules say."""
    text = "".join(f"{name} {_digest_of(name)}\n" for name in sorted(modules))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@functools.cache
def _closure(roots: frozenset[str]) -> frozenset[str]:
    graph = _graph()
    found: set[str] = set()
    waiting = [root for root in roots if root in graph.modules]
    while waiting:
        module = waiting.pop()
        if module not in found and counts(module):
            found.add(module)
            waiting += graph.find_modules_directly_imported_by(module)
    return frozenset(found)


@functools.cache
def _graph() -> grimp.ImportGraph:
    """The imports among our modules; those that only a type checker follows left out."""
    return grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)


@functools.cache
def _digest_of(module: str) -> str:
    return hashlib.sha256(code_of(_file(module)).encode()).hexdigest()


def _file(module: str) -> Path:
    path = SOURCES.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@functools.cache
def registering_modules() -> dict[str, str]:
    """The module that registers each model of timm's kind, and each type of mmengine's, by name."""
    found = {}
    for module in sorted(_graph().modules):
        path = _file(module)
        if any(word in path.read_text(encoding="utf-8") for word in REGISTERING):
            found.update(dict.fromkeys(_registered_in(syntax_tree(path)), module))
    return found


def _registered_in(tree: ast.Module) -> Iterator[str]:
    """The names of the functions and classes at the top level that a decorator registers."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            for decorator in node.decorator_list:
                if any(word in ast.unparse(decorator) for word in REGISTERING):
                    yield node.name


def _named_in(value: Any) -> set[str]:
    """The modules that register what a recipe, or a measure's arguments, name."""
    strings = {*_strings(value.model_dump() if isinstance(value, Training) else value)}
    if isinstance(value, SegmentationRecipe):
        strings |= config_strings(value.model.name)
    known = registering_modules()
    if any(one.startswith(HUBS) for one in strings):  # a model of a hub may be any of ours
        return set(known.values())
    # A name may carry the tag of its weights, as timm's do.
    return {known[name] for name in (one.partition(".")[0] for one in strings) if name in known}


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _strings(one)


def _openers(datasets: Iterable[DatasetInfo]) -> set[str]:
    """The modules that open these datasets: our function, and mmseg's class where it is ours."""
    types = {info.segmentation.type for info in datasets if info.segmentation}
    return {*(_module(info.loader) for info in datasets), *_named_in(sorted(types))}


def _module(function: str) -> str:
    return function.partition(":")[0]
