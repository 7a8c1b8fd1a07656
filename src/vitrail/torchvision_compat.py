"""Lets `import torchvision` work where its compiled extension cannot load.

Its wheel on PyPI is built for CUDA. Beside a CPU-only torch the extension does not load, and
`import torchvision` (and timm's) dies with "operator torchvision::nms does not exist". So an import
hook declares the two missing operators first, only where the extension does not load;
`torchvision.ops.nms` and `torchvision.io` stay unavailable there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


class _Hook:
    """A finder that finds nothing: it only acts before the finders that do."""

    library: Any = None  # kept for the life of the process: the schemas vanish with their owner

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        """Declare what torchvision lacks, when it is about to be imported."""
        if name == "torchvision" and self.library is None:
            spec = PathFinder.find_spec(name)
            if spec is not None and not _extension_loads(spec):
                import torch

                self.library = torch.library.Library("torchvision", "FRAGMENT")
                for operator in ("nms", "qnms"):
                    self.library.define(operator + _SCHEMA)


def install() -> None:
    """Put the hook before all finders."""
    sys.meta_path.insert(0, _Hook())


def _extension_loads(spec: ModuleSpec) -> bool:
    """Try what torchvision's own import does first: load its `_C` library (0.29: `_C_stable`)."""
    import torch

    found = Path(spec.origin or "").parent.glob("_C*")
    libraries = [one for one in found if one.name.endswith(tuple(EXTENSION_SUFFIXES))]
    try:
        for library in libraries:
            torch.ops.load_library(library)
    except (ImportError, OSError):
        return False
    return bool(libraries)
