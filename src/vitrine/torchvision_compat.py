"""Lets `import torchvision` work where its compiled extension cannot load.

torchvision's wheel on PyPI is built for CUDA. Beside a CPU-only torch its extension does not
load, and `import torchvision` (and with it timm's) then dies with "operator torchvision::nms does
not exist", because torchvision gives these operators a fake kernel without asking whether they
exist. Importing this module first declares the two missing schemas, and only when the extension
really does not load; `torchvision.ops.nms` and `torchvision.io` stay unavailable there.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import torch

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def _extension_loads() -> bool:
    """Try what torchvision's own import does first: load its `_C` library."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return False
    for suffix in EXTENSION_SUFFIXES:
        library = Path(spec.origin).with_name(f"_C{suffix}")
        if library.exists():
            try:
                torch.ops.load_library(library)
            except (ImportError, OSError):
                return False
            return True
    return False


def _declare_missing_operators() -> torch.library.Library | None:
    """Declare `nms` and `qnms` and return their owner, or None where nothing is missing."""
    if "torchvision" in sys.modules or _extension_loads():
        return None
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(name + _SCHEMA)
    return library


# Kept for the life of the process: the schemas vanish with their owner.
_library = _declare_missing_operators()
