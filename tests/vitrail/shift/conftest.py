"""The run that measures are tested on, and a device without float64."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.vitrail.measures.conftest import trained_on_digits

__all__ = ["NoFloat64", "trained_on_digits"]


class NoFloat64(TorchDispatchMode):
    """A device that has none, such as MPS."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        results = result if isinstance(result, tuple | list) else [result]
        assert torch.float64 not in [
            result.dtype for result in results if isinstance(result, torch.Tensor)
        ]
        return result
