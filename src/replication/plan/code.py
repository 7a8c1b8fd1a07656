"""What a number depends on in the code, as one digest.

Counted are the modules that measure, build the model, register what it is made of by name and open
the dataset, and all that these import, as `replication.plan.source.code_of` gives their code. The
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
from replication.plan.kinds import RECIPES, AnyRecipe
from replication.plan.recipe import Training
from replication.plan.source import code_of, syntax_tree
from vitrail.errors import VitrailError, did_you_mean
from vitrail.naming import HUBS, OURS

SOURCES = Path(vitrail.__file__).parents[1]
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
    "vitrail.measures.price",
    "vitrail.models",  # imports every family; a model counts where it is named
    "vitrail.naming",
    "vitrail.provenance",
    "vitrail.segmentation",  # itself, not the modules in it: it registers them all
)
REGISTERING = ("register_model", "register_module")  # decorators of timm and of mmengine
RENDERING = (
    "replication.evidence.comparison",
    "replication.evidence.numbers",
    "replication.evidence.tables",
    "vitrail.scores",
    "vitrail.style",
)
REPORTING = (
    "replication.evidence.claims",
    "replication.evidence.effects",
    "replication.evidence.forest",
    "replication.evidence.markdown_report",
    "replication.evidence.page",
    "replication.evidence.report",
)


def measuring_digest(
    function: str, args: Any, recipe: AnyRecipe | None, datasets: Iterable[DatasetInfo]
) -> str:
    """Return the digest of the code behind a measurement, as it is now."""
    return digest(modules_of_measurement(function, args, recipe, datasets))


def training_digest(recipe: AnyRecipe, dataset: DatasetInfo) -> str:
    """Return the digest of the code that trains a recipe, as it is now."""
    return digest(modules_of_training(recipe, dataset))


def modules_of_training(recipe: AnyRecipe, dataset: DatasetInfo) -> frozenset[str]:
    """The modules that decide what a recipe is trained to on a dataset."""
    return closure({*recipe.code, *_named_in(recipe), *_openers([dataset])})


def modules_of_preparation(info: DatasetInfo) -> frozenset[str]:
    """The modules that decide what is made for a dataset, if something is."""
    return closure([_module(info.prepare)]) if info.prepare else frozenset()


def modules_of_rendering(draw: str | None) -> frozenset[str]:
    """The modules that render: what all artifacts share, and a figure's own function."""
    return frozenset(RENDERING) | (closure([_module(draw)]) if draw else frozenset())


def modules_of_report() -> frozenset[str]:
    """The modules that write the report of a scale."""
    return frozenset((*RENDERING, *REPORTING))


def modules_of_measurement(
    function: str, args: Any, recipe: AnyRecipe | None, datasets: Iterable[DatasetInfo]
) -> frozenset[str]:
    """The modules that decide what is measured.

    `args` of the ``module:function`` may name models; `recipe` is what it is taken on, if it is on
    something, trained or not; `datasets` are those whose images it may read.
    """
    roots = {_module(function), *_named_in(args), *_openers(datasets)}
    if recipe is not None:
        roots |= {recipe.builder, *_named_in(recipe)}
    return closure(roots)


def require_function(function: str, arguments: Iterable[str], where: str) -> None:
    """Raise a `VitrailError` unless a module of ours defines a function that takes `arguments`.

    The source is read, nothing is imported. `function` is ``module:function``; what it is called
    with first is not among the `arguments`; `where` says what names it.
    """
    module, _, name = function.partition(":")
    if module not in _graph().modules:
        hint = did_you_mean(module, _graph().modules)
        raise VitrailError(f"{where}: there is no module '{module}' in src/{hint}")
    defined = _defined_in(module)
    if name not in defined:
        hint = did_you_mean(name, defined)
        raise VitrailError(f"{where}: {module} does not define a function '{name}'{hint}")
    if (written := defined[name]) is None:
        return
    named = [*written.args, *written.kwonlyargs]
    taken = [argument.arg for argument in (named if written.posonlyargs else named[1:])]
    for argument in arguments:
        if argument not in taken and not written.kwarg:
            hint = did_you_mean(argument, taken)
            raise VitrailError(f"{where}: {function} takes no argument '{argument}'{hint}")


@functools.cache
def _defined_in(module: str) -> dict[str, ast.arguments | None]:
    """The functions at the top level of a module, with their arguments.

    Of a function that is assigned, as what another one makes, they are not known: None.
    """
    defined: dict[str, ast.arguments | None] = {}
    for node in syntax_tree(file_of(module)).body:
        if isinstance(node, ast.FunctionDef):
            defined[node.name] = node.args
        elif isinstance(node, ast.Assign):
            defined |= dict.fromkeys(map(ast.unparse, node.targets))
        elif isinstance(node, ast.AnnAssign):
            defined[ast.unparse(node.target)] = None
    return defined


def closure(roots: Iterable[str]) -> frozenset[str]:
    """Some modules and all that they import, directly or not, as far as they count."""
    return _closure(frozenset(roots))


def counts(module: str) -> bool:
    """Whether numbers can depend on a module; fields of recipes decide by their values alone."""
    fields = module.startswith(RECIPES) or module.endswith(".recipe")
    return module.startswith(COUNTS) and module not in PLUMBING and not fields


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
    return grimp.build_graph(*OURS, exclude_type_checking_imports=True, cache_dir=None)


@functools.cache
def _digest_of(module: str) -> str:
    return hashlib.sha256(code_of(file_of(module)).encode()).hexdigest()


def file_of(module: str) -> Path:
    """The file of one of our modules."""
    path = SOURCES.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@functools.cache
def registering_modules() -> dict[str, str]:
    """The module that registers each model of timm's kind, and each type of mmengine's, by name."""
    found = {}
    for module in sorted(_graph().modules):
        path = file_of(module)
        if any(word in path.read_text(encoding="utf-8") for word in REGISTERING):
            found.update(dict.fromkeys(_registered_in(syntax_tree(path)), module))
    return found


def _registered_in(tree: ast.Module) -> Iterator[str]:
    """The names of the functions and classes at the top level that a decorator registers."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            for decorator in node.decorator_list:
                if any(word in ast.unparse(decorator) for word in REGISTERING):
                    yield _registered_name(decorator) or node.name


def _registered_name(decorator: ast.expr) -> str | None:
    """The `name` that a call of a decorator gives, if it does: else the class has its own."""
    given = {word.arg: word.value for word in getattr(decorator, "keywords", [])}
    return ast.literal_eval(given["name"]) if "name" in given else None


def _named_in(value: Any) -> set[str]:
    """The modules that register what a recipe, or a measure's arguments, name."""
    strings = {*_strings(value.model_dump() if isinstance(value, Training) else value)}
    if isinstance(value, Training):
        strings.update(value.names_elsewhere())
    known = registering_modules()
    if any(text.startswith(HUBS) for text in strings):  # a model of a hub may be any of ours
        return set(known.values())
    # A name may carry the tag of its weights, as timm's do.
    return {known[name] for name in (text.partition(".")[0] for text in strings) if name in known}


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _openers(datasets: Iterable[DatasetInfo]) -> set[str]:
    """The modules that open these datasets: our function, and mmseg's class where it is ours."""
    types = {info.segmentation.type for info in datasets if info.segmentation}
    return {*(_module(info.loader) for info in datasets), *_named_in(sorted(types))}


def _module(function: str) -> str:
    return function.partition(":")[0]
