"""The digest of what a module of ours does, independent of the names of modules and functions.

The digest of a module covers its code, as `replication.config.python_source.deciding_tree` gives
it, and all modules of ours that it imports. Two kinds of names are left out:

- the name of a module: wherever a name is used that an import binds, it is replaced by the digest
  of the imported module;
- the name of a function at the top level: it is replaced by its number among the functions of its
  module, both there and in the modules that import it.

So no digest changes if a module is moved, or a function renamed, together with all its uses. An
exchange does change a digest: if two modules trade their names, the importer gets another digest;
if two functions trade their names, they get other numbers; if they trade their bodies, the text
differs.

A name is replaced only if it has one meaning in the whole module. It stays as it is written if
something else binds it, too (an argument, a variable, a class), if it is a builtin's or begins with
two underscores, if a string equals it (as in ``__all__`` or ``getattr``), or if a decorator may
register the function under it. The names of classes and constants stay. A module that imports
another as a whole can reach any name in it, so in this case the names of the imported module count.
One case is not noticed: code that reads the ``__name__`` of a function to compute a number with it.
"""

from __future__ import annotations

import ast
import builtins
import functools
import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import resolve_name
from pathlib import Path

import vitrail
from replication.config.functions import OURS
from replication.config.python_source import deciding_tree
from replication.config.recipe_types import RECIPES
from vitrail.errors import VitrailError

SOURCES = Path(vitrail.__file__).parents[1]
COUNTS = (
    "vitrail",
    *("replication.images", "replication.epoch_length", "replication.context"),
    "replication.config.functions",
    *("replication.training", "replication.datasets", "replication.measures"),
    *("replication.papers", "replication.claims", "replication.report"),
)
LEFT_OUT = "\n# decides no number"  # the line that excludes a module of these packages
VARIOUS = ""  # the meaning of a name that is neither a function nor an import of ours


@dataclass(frozen=True)
class ModuleCode:
    """A module's digest, the replacement of each name in it, and the modules of ours it imports."""

    digest: str
    names: Mapping[str, str]
    imports: frozenset[str]

    @functools.cached_property
    def whole(self) -> str:
        """Return the module's replacement where any name in it may be used."""
        return _sha256(self.digest, *(f"{name} {is_}" for name, is_ in sorted(self.names.items())))

    def reference(self, name: str) -> str:
        """Return the replacement of a name of the module in the modules that import it."""
        return f"{self.digest}.{self.names.get(name, name)}"


@dataclass(frozen=True)
class _Import:
    """One name of an import statement: its name in the importing module, and what of ours it is."""

    local: str
    module: str
    name: str | None  # the name in that module; None if the module itself is imported

    @property
    def meaning(self) -> str:
        """Return the replacement of the name; without a digest if the module does not count."""
        if not counts(self.module):
            return f"~{self.name or ''}"
        code = module_code(self.module)
        return code.whole if self.name is None else code.reference(self.name)


@functools.cache
def modules() -> Mapping[str, Path]:
    """Return the file of each of our modules, by the module's name."""
    found = {}
    for package in OURS:
        for path in sorted((SOURCES / package).rglob("*.py")):
            parts = path.relative_to(SOURCES).with_suffix("").parts
            found[".".join(parts[:-1] if path.stem == "__init__" else parts)] = path
    return found


def file_of(module: str) -> Path:
    """Return the file of one of our modules."""
    return modules()[module]


@functools.cache
def counts(module: str) -> bool:
    """Tell whether results can depend on the code of a module.

    They cannot on modules that define recipes: of a recipe only the values of its fields count.
    """
    if module.startswith(RECIPES) or module.endswith(".recipe"):
        return False
    inside = any(f"{module}.".startswith(f"{package}.") for package in COUNTS)
    return inside and LEFT_OUT not in file_of(module).read_text(encoding="utf-8")


_reading: list[str] = []  # the modules now being read; each is imported by the one before it


@functools.cache
def module_code(module: str) -> ModuleCode:
    """Read one of our modules: its digest, names and imports.

    Raises:
        VitrailError: it is not valid Python, or it imports itself through other modules.
    """
    if module in _reading:
        circle = [*_reading[_reading.index(module) :], module]
        raise VitrailError(
            f"{' imports '.join(circle)}: a module whose code counts cannot import itself; move "
            "what these modules share into one of its own"
        )
    _reading.append(module)
    try:
        return _read(module)
    finally:
        _reading.pop()


def _read(module: str) -> ModuleCode:
    tree = deciding_tree(file_of(module))
    defined = (
        id(node)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.decorator_list
    )
    functions = {node: f"#{number}" for number, node in enumerate(defined)}
    imports = {
        id(alias): found
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if (found := _import(node, alias, module))
    }
    meanings = defaultdict[str, set[str]](set)
    for name, meaning in _bound(tree, functions, imports):
        meanings[name].add(meaning)
    names = {
        name: next(iter(found))
        for name, found in meanings.items()
        if len(found) == 1 and VARIOUS not in found and not _is_python(name)
    }
    for node in [*ast.walk(tree)]:
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
        elif isinstance(node, ast.FunctionDef) and id(node) in functions:
            node.name = names.get(node.name, node.name)
        for field in ("body", "orelse", "finalbody"):
            if isinstance(block := getattr(node, field, None), list):
                kept = [each for one in block for each in _without(one, imports, names)]
                setattr(node, field, kept or [ast.Pass()] * bool(block))
    imported = frozenset(each.module for each in imports.values())
    # The import itself counts, since it may register something; its place in the file does not.
    behind = sorted(
        module_code(each.module).digest if each.name else each.meaning
        for each in imports.values()
        if counts(each.module)
    )
    return ModuleCode(_sha256(*dict.fromkeys(behind), ast.unparse(tree)), names, imported)


def _is_python(name: str) -> bool:
    """Tell whether Python itself looks a name up (as ``__getattr__``), or it is a builtin's."""
    return name.startswith("__") or hasattr(builtins, name)


def _import(node: ast.Import | ast.ImportFrom, alias: ast.alias, module: str) -> _Import | None:
    """Return what of ours a name of an import statement in `module` is; None if it is not ours."""
    if isinstance(node, ast.Import):
        local, imported, name = alias.asname or alias.name, alias.name, None
    else:
        is_package = file_of(module).stem == "__init__"
        package = module if is_package else module.rpartition(".")[0]
        imported = resolve_name("." * node.level + (node.module or ""), package)
        local, name = alias.asname or alias.name, alias.name
        if f"{imported}.{name}" in modules():
            imported, name = f"{imported}.{name}", None
        elif name == "*":
            name = None
    return _Import(local, imported, name) if imported in modules() else None


def _bound(
    tree: ast.Module, functions: Mapping[int, str], imports: Mapping[int, _Import]
) -> Iterator[tuple[str, str]]:
    """Yield every binding in a module: the name, and its meaning there (`VARIOUS` if not ours)."""
    for node in ast.walk(tree):
        match node:
            case ast.alias() if id(node) in imports:
                each = imports[id(node)]
                single = each.local.isidentifier()  # `import a.b` binds `a`, which has more in it
                yield each.local.partition(".")[0], each.meaning if single else VARIOUS
            case ast.alias():
                yield (node.asname or node.name).partition(".")[0], VARIOUS
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, functions.get(id(node), VARIOUS)
            case ast.Name(ctx=ast.Store() | ast.Del()):
                yield node.id, VARIOUS
            case ast.arg():
                yield node.arg, VARIOUS
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield name, VARIOUS
            case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield name, VARIOUS
            case ast.Global() | ast.Nonlocal():
                yield from ((name, VARIOUS) for name in node.names)
            case ast.Constant(value=str(name)):
                yield name, VARIOUS


def _without(
    statement: ast.stmt, imports: Mapping[int, _Import], names: Mapping[str, str]
) -> Iterator[ast.stmt]:
    """Yield a statement without its imports of ours, except those whose name is not replaced."""
    if not isinstance(statement, ast.Import | ast.ImportFrom):
        yield statement
        return
    ours = [imports[id(alias)] for alias in statement.names if id(alias) in imports]
    statement.names = [alias for alias in statement.names if id(alias) not in imports]
    if statement.names:
        yield statement
    for each in ours:
        if each.local not in names:
            yield ast.Import([ast.alias(each.meaning, each.local)])


def _sha256(*lines: str) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
