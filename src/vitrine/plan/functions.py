"""Functions that a configuration names as ``module:function``, and what their code is."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vitrine.errors import VitrineError


def import_function(name: str, file: str) -> Callable[..., Any]:
    """Import ``module:function``; `file` is where it is named.

    Raises:
        VitrineError: there is no such module or function.
    """
    module, _, function = name.partition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise VitrineError(
            f"the function '{name}' cannot be imported ({error}); correct {file}"
        ) from None
    return found


@functools.cache
def source_digest(*names: str) -> str:
    """Return eight hex digits that change with the source of these modules and their neighbours.

    Args:
        names: ``module`` or ``module:function``; all modules in its folder count, since what a
            measure measures is often written beside it. What they import from elsewhere does not
            count, and a name that is not found counts as empty: the job says so better.
    """
    digest = hashlib.sha256()
    for name in names:
        for file in _sources(name.partition(":")[0]):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:8]


def _sources(module: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(module)
    except ImportError:
        return []
    if spec is None or spec.origin is None:
        return []
    return sorted(Path(spec.origin).parent.glob("*.py"))
