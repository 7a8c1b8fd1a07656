"""Python files that configurations name, read without running them.

Such are our MMSegmentation configurations: the catalogue needs neither mmengine nor torch for them.
"""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path

from vitrail.errors import VitrailError, require_known

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_WITH_STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)


def syntax_tree(path: Path) -> ast.Module:
    """Parse a Python file, or raise VitrailError."""
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise VitrailError(f"cannot read {path}: {error.strerror or error}") from None
    except (SyntaxError, ValueError) as error:
        raise VitrailError(f"{path} is not valid Python ({error}); correct it") from None


def code_of(path: Path) -> str:
    """Return a Python file's code, without comments, docstrings and the messages of errors.

    Raises VitrailError as `syntax_tree`.
    """
    tree = syntax_tree(path)
    waiting: list[ast.AST] = [tree]
    while waiting:  # through statements alone: no expression holds a docstring
        node = waiting.pop()
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            node.exc.args, node.exc.keywords = [], []
        if isinstance(node, ast.Assert):
            node.msg = None
        waiting += (one for one in ast.iter_child_nodes(node) if isinstance(one, _WITH_STATEMENTS))
    return ast.unparse(tree)


FOLDER = Path("configs") / "segmentation"
THEIRS = "mmseg::"  # mmengine's prefix of MMSegmentation's own files


def config_path(name: str, root: Path = Path()) -> str:
    """Return what mmengine opens for a configuration's name: a path, or ``mmseg::<file>``.

    Raises VitrailError where there is no such file among ours.
    """
    if name.startswith(THEIRS):
        return name
    known = {file.stem: str(file) for file in (root / FOLDER).glob("*.py")}
    require_known(f"{root / FOLDER}: configuration", name, known)
    return known[name]


def config_digest(name: str, root: Path) -> str:
    """Return 16 hex digits that change with what a configuration of ours says in code.

    MMSegmentation's own files are pinned by its version and give "". Raises VitrailError where
    there is no such file, or it is no configuration.
    """
    if name.startswith(THEIRS):
        return ""
    code = "".join(map(code_of, _with_bases(Path(config_path(name, root)))))
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def config_strings(name: str, root: Path = Path()) -> set[str]:
    """Return every string in a configuration of ours and in those of ours that it inherits.

    Among them are the types that it names; MMSegmentation's own files name none of ours. Errors as
    `config_digest`.
    """
    if name.startswith(THEIRS):
        return set()
    return {
        node.value
        for file in _with_bases(Path(config_path(name, root)))
        for node in ast.walk(syntax_tree(file))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _with_bases(path: Path, heirs: tuple[Path, ...] = ()) -> list[Path]:
    """A file and those of ours that it inherits, the most basic first."""
    if path.resolve() in heirs:
        raise VitrailError(f"{path} inherits itself; correct one _base_")
    bases = [
        file
        for base in _bases(path)
        if not base.startswith(THEIRS)
        for file in _with_bases(path.parent / base, (*heirs, path.resolve()))
    ]
    return list(dict.fromkeys([*bases, path]))


def _bases(path: Path) -> list[str]:
    for node in syntax_tree(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_base_":
            try:
                value = ast.literal_eval(node.value)
            except ValueError:
                raise VitrailError(f"{path}: write the files of _base_ as plain strings") from None
            return [value] if isinstance(value, str) else list(value)
    return []
