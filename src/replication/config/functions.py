"""Names in configurations: functions as ``module:function``, and models of hubs."""

# decides no number

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from vitrail.errors import VitrailError

OURS = ("vitrail", "replication")  # the packages whose functions a configuration may name
HUBS = ("hf-hub:", "local-dir:")  # timm's prefixes for models outside its registry


def import_function(name: str, file: str) -> Callable[..., Any]:
    """Import a function of this project by ``module:function``; `file` is where it is named.

    Raises:
        VitrailError: it is in another package, or there is no such function.
    """
    module, _, function = name.partition(":")
    if module.partition(".")[0] not in OURS:
        raise VitrailError(
            f"{file} names the function '{name}', which is not of this project: put it into a "
            f"module of {' or '.join(f'src/{package}' for package in OURS)}"
        )
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise VitrailError(
            f"the function '{name}' cannot be imported ({error}); correct {file}"
        ) from None
    return found
