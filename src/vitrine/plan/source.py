"""Python files as what they say, read without running them."""

from __future__ import annotations

import ast
from pathlib import Path

from vitrine.errors import VitrineError

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_WITH_STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)


def syntax_tree(path: Path) -> ast.Module:
    """Parse a Python file.

    Raises:
        VitrineError: it cannot be read or parsed.
    """
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise VitrineError(f"cannot read {path}: {error.strerror or error}") from None
    except (SyntaxError, ValueError) as error:
        raise VitrineError(f"{path} is not valid Python ({error}); correct it") from None


def code_of(path: Path) -> str:
    """Return a Python file's code, without comments and docstrings; errors as `syntax_tree`."""
    tree = syntax_tree(path)
    waiting: list[ast.AST] = [tree]
    while waiting:  # through statements alone: no expression holds a docstring
        node = waiting.pop()
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        waiting += (one for one in ast.iter_child_nodes(node) if isinstance(one, _WITH_STATEMENTS))
    return ast.unparse(tree)
