"""Invariance of untrained full-size models on real photographs; it holds for any weights.

A property that the architecture guarantees can be tested without training and without a dataset.
Each model is run on crops of two photographs and on the same crops transformed by elements of a
group, and the logits are compared: whether all bits agree, and how large the difference is. Each
table also has models that are not invariant, to show that the test can fail.

Weights are initial ones, with one exception: SwinV2 initialises the norms at the end of each
branch with scale 0, so that all blocks are the identity and attention would not be tested. Such
scales are set to 1 (`open_branches`).
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
    """Compare logits of untrained models on photographs with those on transformed photographs.

    Args:
        context: device and seed; the seed decides weights and crops.
        models: fields of `replication.measures.parameters.Architecture` for each label.
        group_on: returns, for images ``(B, 3, H, W)``, the group elements that transform them.
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
    """Turn uint8 images ``(B, H, W, 3)`` into ``(B, 3, H, W)`` of `dtype`, from -1 to 1."""
    return images.permute(0, 3, 1, 2).contiguous().to(dtype) / 127.5 - 1


@torch.no_grad()
def open_branches(model: nn.Module) -> None:
    """Set the scales of a LayerNorm to 1 if all of them are 0, which would disable its branch."""
    for module in model.modules():
        if isinstance(module, nn.LayerNorm) and module.elementwise_affine:
            module.weight.masked_fill_(~module.weight.any(), 1)
