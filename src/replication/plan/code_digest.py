"""One digest of all code that a number depends on.

Counted are the modules that measure, that build the model, that register its parts by name and that
open the dataset, and all modules that these import (`replication.plan.module_digest`). The source
is read; nothing is imported. Whether a module counts is decided by its package (`COUNTS`): code
that plans, or that reads and prints for users, changes no number. Inside these packages, a module
with the line ``# decides no number`` does not count.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from replication.config.datasets import DatasetInfo
from replication.config.functions import HUBS
from replication.config.python_source import syntax_tree
from replication.config.recipe import Training
from replication.config.recipe_types import AnyRecipe
from replication.plan.module_digest import COUNTS, LEFT_OUT, counts, file_of, module_code, modules
from vitrail.errors import VitrailError, did_you_mean

REGISTERING = ("register_model", "register_module")  # functions of timm and of mmengine
RENDERER = "replication.report.tables:render"
REPORTER = "replication.report.html_report:write_report"


@dataclass(frozen=True)
class Code:
    """The code that a result depends on: functions and models, as ``module:name``.

    All that their modules import belongs to it. The position of a root tells its purpose, so the
    order of `roots` enters the digest.
    """

    roots: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Return 16 hex digits of the SHA-256 of the roots' code and all that they import."""
        text = "\n".join(map(_reference, self.roots))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def modules(self) -> frozenset[str]:
        """Return the modules of the roots and all that they import, as far as they count."""
        return closure(map(_module, self.roots))


def measurement_code(
    function: str, args: Any, recipe: AnyRecipe | None, datasets: Iterable[DatasetInfo]
) -> Code:
    """Return the code that decides the values of a measurement, as it is now.

    `args` are those of the measured `function` (``module:function``) and may name models. `recipe`
    is what is measured, trained or not; None if the measure needs no recipe. `datasets` are those
    whose images may be read.
    """
    built = (f"{recipe.builder}:build_model", *_named_in(recipe)) if recipe is not None else ()
    return Code((function, *_named_in(args), *_openers(datasets), *built))


def training_code(recipe: AnyRecipe, dataset: DatasetInfo) -> Code:
    """Return the code that trains a recipe on a dataset, as it is now."""
    return Code((*recipe.code, *_named_in(recipe), *_openers([dataset])))


def preparation_code(info: DatasetInfo) -> Code:
    """Return the code that makes a dataset's files; without roots if no code of ours makes them."""
    return Code((info.prepare,) if info.prepare else ())


def rendering_code(draw: str | None) -> Code:
    """Return the code that renders an artifact: what all share, and a figure's own function."""
    return Code((RENDERER, draw) if draw else (RENDERER,))


def report_code() -> Code:
    """Return the code that writes the report of a scale."""
    return Code((REPORTER,))


def require_function(function: str, arguments: Iterable[str], where: str) -> None:
    """Raise a `VitrailError` unless a module of ours defines a function that takes `arguments`.

    The source is read; nothing is imported. `function` is ``module:function``. Its first parameter
    is not one of the `arguments`. `where` is the place that names the function, for the error.
    """
    module, _, name = function.partition(":")
    if module not in modules():
        hint = did_you_mean(module, modules())
        raise VitrailError(f"{where}: there is no module '{module}' in src/{hint}")
    if not counts(module):
        raise VitrailError(
            f"{where}: a change of '{module}' would make nothing due; move the function to a "
            f"module of {', '.join(COUNTS)} without a line '{LEFT_OUT.strip()}'"
        )
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


def parameters_of(function: str) -> dict[str, Any]:
    """Return the parameters of a function (``module:function``) but for the first, with defaults.

    A default is None if the parameter has none, or one that is not a literal. The result is empty
    if the signature cannot be read from the source.
    """
    module, _, name = function.partition(":")
    written = _defined_in(module).get(name)
    if written is None:
        return {}
    named = [*written.posonlyargs, *written.args]
    required = [None] * (len(named) - len(written.defaults))
    pairs = [*zip(named, [*required, *written.defaults], strict=True)]
    pairs += zip(written.kwonlyargs, written.kw_defaults, strict=True)
    return {argument.arg: _plain(default) for argument, default in pairs[1:]}


def _plain(node: ast.expr | None) -> Any:
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:
        return None


@functools.cache
def _defined_in(module: str) -> dict[str, ast.arguments | None]:
    """Return the functions at the top level of a module, with their arguments.

    The arguments are None for a name that is assigned (such as the result of another function).
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
    """Return the counted modules among `roots` and all that they import, directly or indirectly."""
    return _closure(frozenset(roots))


@functools.cache
def _closure(roots: frozenset[str]) -> frozenset[str]:
    found: set[str] = set()
    waiting = [root for root in roots if root in modules()]
    while waiting:
        module = waiting.pop()
        if module not in found and counts(module):
            found.add(module)
            waiting += module_code(module).imports
    return frozenset(found)


@functools.cache
def _reference(root: str) -> str:
    """Return the digest of a root; its name if there is no such module, or if it does not count."""
    module, _, name = root.partition(":")
    known = module in modules() and counts(module)
    return module_code(module).reference(name) if known else root


@functools.cache
def registering_modules() -> dict[str, str]:
    """Return the module that registers each model of timm and each type of mmengine, by name."""
    found = {}
    for module, path in sorted(modules().items()):
        if any(word in path.read_text(encoding="utf-8") for word in REGISTERING):
            found.update(dict.fromkeys(_registered_in(syntax_tree(path)), module))
    return found


def _registered_in(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module registers at its top level, by a decorator or an assignment."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            for decorator in node.decorator_list:
                if _registers(decorator):
                    yield _registered_name(decorator) or node.name
        elif isinstance(node, ast.Assign) and _registers(getattr(node.value, "func", node.value)):
            yield from map(ast.unparse, node.targets)


def _registers(function: ast.expr) -> bool:
    return any(word in ast.unparse(function) for word in REGISTERING)


def _registered_name(decorator: ast.expr) -> str | None:
    """Return the `name` that a call of a decorator gives; None if it gives none."""
    given = {word.arg: word.value for word in getattr(decorator, "keywords", [])}
    return ast.literal_eval(given["name"]) if "name" in given else None


def _named_in(value: Any) -> list[str]:
    """Return as roots our models and types that a recipe, or the arguments of a measure, name."""
    strings = {*_strings(value.model_dump() if isinstance(value, Training) else value)}
    if isinstance(value, Training):
        strings.update(value.names_elsewhere())
    known = registering_modules()
    if any(text.startswith(HUBS) for text in strings):  # a hub's model may use any of our models
        names = {*known}
    else:  # a name may end with the tag of its weights, as in timm
        names = {text.partition(".")[0] for text in strings} & known.keys()
    return [f"{known[name]}:{name}" for name in sorted(names)]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _openers(datasets: Iterable[DatasetInfo]) -> Iterator[str]:
    """Yield the code that opens datasets: our loader, and mmseg's dataset class if it is ours."""
    for info in datasets:
        yield info.loader
        if info.segmentation:
            yield from _named_in(info.segmentation.type)


def _module(root: str) -> str:
    return root.partition(":")[0]
