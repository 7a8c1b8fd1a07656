"""Invariance of untrained full-size models on real photographs: a property of any weights.

What an architecture guarantees needs no training and no dataset. Each model is shown crops of two
photographs and the same crops moved by elements of a group, and its logits are compared bit by bit
and by size. A model that is not invariant must fail, so each table that shows this has some.

Weights are those that a training begins with, but for one thing: SwinV2's training begins with
norms of scale 0 at the end of each branch, so that all blocks are the identity and no attention
would be tested. Such scales are set to 1 (`open_branches`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from replication.context import Context, Values
from replication.images.photos import photo_crops
from replication.measures.parameters import architectures
from vitrail.measures.equivariance import Group
from vitrail.measures.invariance import change_under

DTYPES = {"float32": torch.float32, "float64": torch.float64}
Dtype = Literal["float32", "float64"]


def logits_under(
    context: Context,
    models: Mapping[str, Mapping[str, Any]],
    group_on: Callable[[Tensor], Group],
    images: int,
    dtype: Dtype,
) -> Values:
    """Compare the logits of untrained models on photographs with those of the moved photographs.

    Args:
        context: where to measure; its seed makes weights and crops.
        models: fields of `replication.measures.parameters.Architecture` by label.
        group_on: from images ``(B, 3, H, W)`` to the elements that move them.
        images: how many crops.
        dtype: of weights and images.

    Returns:
        ``"<label>/<key>"`` with the fields of `vitrail.measures.invariance.Change`.

    Raises:
        VitrailError: a model does not exist or refuses its arguments, or a crop would be larger
            than a photograph, or a logit is not finite.
    """
    values: dict[str, float] = {}
    for label, architecture in architectures(models).items():
        model = architecture.build(context.seed).to(context.device, DTYPES[dtype]).eval()
        open_branches(model)
        crops = torch.from_numpy(photo_crops(images, architecture.side(model), context.seed))
        x = as_input(crops.to(context.device), DTYPES[dtype])
        changes = change_under(model, group_on(x), x)._asdict()
        values |= {f"{label}/{key}": value for key, value in changes.items()}
    return values


def as_input(images: Tensor, dtype: torch.dtype) -> Tensor:
    """Turn images ``(B, H, W, 3)`` of bytes into ``(B, 3, H, W)`` of numbers from -1 to 1."""
    return images.permute(0, 3, 1, 2).contiguous().to(dtype) / 127.5 - 1


@torch.no_grad()
def open_branches(model: nn.Module) -> None:
    """Set the scales of a norm to 1 where all of them are 0, which would hide its branch."""
    for module in model.modules():
        if isinstance(module, nn.LayerNorm) and module.elementwise_affine:
            module.weight.masked_fill_(~module.weight.any(), 1)
