"""Read Python files that configurations name, without running them.

Our MMSegmentation configurations are such files: the catalogue needs neither mmengine nor torch to
read them.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterable, Iterator
from pathlib import Path

from vitrail.errors import VitrailError, require_known

_WITH_STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)
_OF_TYPES = ("typing", "collections.abc")


def syntax_tree(path: Path) -> ast.Module:
    """Parse a Python file; raises VitrailError if it is missing or not valid Python."""
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise VitrailError(f"cannot read {path}: {error.strerror or error}") from None
    except (SyntaxError, ValueError) as error:
        raise VitrailError(f"{path} is not valid Python ({error}); correct it") from None


def code_of(path: Path) -> str:
    """Return the text of a Python file without what `deciding_tree` leaves out; errors as there."""
    return ast.unparse(deciding_tree(path))


def deciding_tree(path: Path) -> ast.Module:
    """Parse a Python file, and leave out what decides no number.

    Left out are comments, docstrings (also those of constants and attributes), the messages of
    errors, annotations of arguments and return values, ``if TYPE_CHECKING`` blocks, imports of
    types, and the declared cost of a measure (``@passes``). Annotations in classes stay, since
    dataclasses read them. Raises VitrailError as `syntax_tree`.
    """
    tree = syntax_tree(path)
    waiting: list[ast.AST] = [tree]
    while waiting:  # only statements are visited: no expression contains a docstring
        node = waiting.pop()
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [*_deciding(body)] or [ast.Pass()]  # type: ignore[attr-defined]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
            node.decorator_list = [each for each in node.decorator_list if not _is_price(each)]
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg):
                    argument.annotation = None
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            node.exc.args, node.exc.keywords = [], []
        if isinstance(node, ast.Assert):
            node.msg = None
        waiting += (
            child for child in ast.iter_child_nodes(node) if isinstance(child, _WITH_STATEMENTS)
        )
    return tree


def _is_price(decorator: ast.expr) -> bool:
    """Tell whether a decorator is ``@passes(...)``, which declares the cost of a measure."""
    return isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "passes"


def _deciding(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that decide something: no docstrings and no imports of types."""
    for statement in statements:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            yield from _deciding(statement.orelse)
        elif not (isinstance(statement, ast.ImportFrom) and statement.module in _OF_TYPES):
            yield statement


FOLDER = Path("configs") / "segmentation"
THEIRS = "mmseg::"  # mmengine's prefix for MMSegmentation's own configurations


def config_files(name: str, root: Path = Path()) -> dict[str, str]:
    """Return the code of a configuration and of our files that it inherits, by path in `FOLDER`.

    A file comes after those that it inherits. MMSegmentation's own files are left out, since its
    version decides them. Raises VitrailError if we have no such file, or if a file is not a valid
    configuration, inherits itself, or lies outside `FOLDER`.
    """
    if name.startswith(THEIRS):
        return {}
    folder = root / FOLDER
    known = [file.stem for file in folder.glob("*.py")]
    require_known(f"{folder}: configuration", name, known)
    return {file: code_of(folder / file) for file in _with_bases(f"{name}.py", folder)}


def strings_in(code: str) -> set[str]:
    """Return every string in Python code; in a configuration these include the names of types."""
    return {
        node.value
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _with_bases(name: str, folder: Path, heirs: tuple[str, ...] = ()) -> list[str]:
    """Return a file of `folder` after those of ours that it inherits, the most basic first."""
    path = folder / name
    if name in heirs:
        raise VitrailError(f"{path} inherits itself; correct one _base_")
    if name.startswith(("/", "../")):
        raise VitrailError(f"{folder / heirs[-1]} inherits {path}; put that file into {folder}")
    bases = [
        file
        for base in _bases(path)
        if not base.startswith(THEIRS)
        for file in _with_bases(_beside(name, base), folder, (*heirs, name))
    ]
    return list(dict.fromkeys([*bases, name]))


def _beside(name: str, base: str) -> str:
    """Return the path in the folder of `base`, which a file inherits by its relative path."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), base))


def _bases(path: Path) -> list[str]:
    for node in syntax_tree(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_base_":
            try:
                value = ast.literal_eval(node.value)
            except ValueError:
                raise VitrailError(f"{path}: write the files of _base_ as plain strings") from None
            listed = [value] if isinstance(value, str) else value
            if not isinstance(listed, list | tuple) or not all(isinstance(f, str) for f in listed):
                raise VitrailError(f"{path}: write the files of _base_ as plain strings")
            return list(listed)
    return []
