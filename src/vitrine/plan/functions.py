"""Functions that a configuration names as ``module:function``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
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
