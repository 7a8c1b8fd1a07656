"""Lets `import torchvision` work beside a build of torch that has no CUDA.

torchvision's wheel on PyPI is built for CUDA. Its compiled extension does not load beside a CPU
build of torch, and `import torchvision` (so `import timm`) fails: "operator torchvision::nms does
not exist". `install.sh` copies this module into an environment whose torch has no CUDA, with a
`.pth` file that imports it when Python starts. When torchvision is about to be imported, it
declares the two operators for which torchvision registers fake kernels, if the extension did not.
`torchvision.ops.nms` and `torchvision.io` stay unavailable.
"""

import sys
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


class _Finder:
    """Finds no module: it only acts before the finders that do."""

    library = None  # kept for the life of the process: the operators vanish with their owner

    def find_spec(self, name, path, target=None):
        if name == "torchvision" and self.library is None:
            spec = PathFinder.find_spec(name)
            if spec is not None and spec.submodule_search_locations:
                self.library = _declare_missing_operators(spec.submodule_search_locations[0])


def _declare_missing_operators(folder):
    """Load the extension in `folder` (`_C`; 0.29: `_C_stable`), and declare what it left out."""
    from pathlib import Path

    import torch

    try:
        for path in Path(folder).glob("_C*"):
            if path.name.endswith(tuple(EXTENSION_SUFFIXES)):
                torch.ops.load_library(path)
    except (ImportError, OSError):
        pass  # torchvision itself ignores this, too
    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, operator):
            library.define(operator + _SCHEMA)
    return library


sys.meta_path.insert(0, _Finder())
