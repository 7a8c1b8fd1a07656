"""Simulated devices that differ from this CPU."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class NoFloat64(TorchDispatchMode):
    """A device that has none, such as MPS."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        results = result if isinstance(result, tuple | list) else [result]
        assert torch.float64 not in [
            result.dtype for result in results if isinstance(result, torch.Tensor)
        ]
        return result


class RoundsByPlace(TorchDispatchMode):
    """A device whose convolutions and linear layers round differently by place.

    Half of the results, in tiles of four rows, columns and channels of a map and of four rows of
    other tokens, are one float32 above what the CPU computes.
    """

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        name = operation.overloadpacket.__name__
        if name in ("convolution", "conv2d"):
            channel, row, column = (torch.arange(side) // 4 for side in result.shape[1:])
            odd = (channel[:, None, None] + row[:, None] + column) % 2 == 1
        elif name in ("addmm", "mm", "linear"):
            rows = torch.arange(result[..., 0].numel()).view(result.shape[:-1])
            odd = (rows // 4 % 2 == 1)[..., None]
        else:
            return result
        return torch.where(odd, result.nextafter(torch.tensor(torch.inf)), result)
