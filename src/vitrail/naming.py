"""What configurations name: functions as ``module:function``, and models of hubs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from vitrail.errors import VitrailError

HUBS = ("hf-hub:", "local-dir:")  # timm's prefixes of models that are not in its registry


def import_function(name: str, file: str) -> Callable[..., Any]:
    """Import ``module:function``, or raise VitrailError, which says that `file` names it."""
    module, _, function = name.partition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise VitrailError(
            f"the function '{name}' cannot be imported ({error}); correct {file}"
        ) from None
    return found
