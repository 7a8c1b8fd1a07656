"""Invariance of untrained full-size models on real photographs: a property of any weights.

What an architecture guarantees needs no training and no dataset. Each model is shown crops of two
photographs and the same crops moved by elements of a group, and its logits are compared bit by bit
and by size. A model that is not invariant must fail, so each table that shows this has some.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from vitrail.images.photos import photo_crops
from vitrail.measures.architecture import architectures
from vitrail.measures.context import Context, Values, require_finite
from vitrail.measures.equivariance import Group

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
        models: fields of `vitrail.measures.architecture.Architecture` by label.
        group_on: from images ``(B, 3, H, W)`` to the elements that move them.
        images: how many crops.
        dtype: of weights and images.

    Returns:
        ``"<label>/equal"``, the percentage of moved images whose logits have the same bits,
        ``"<label>/error"``, the largest change of a logit, and ``"<label>/relative"``, the same
        over the largest logit.

    Raises:
        VitrailError: a model does not exist or refuses its arguments, or a crop would be larger
            than a photograph, or a logit is not finite.
    """
    values: dict[str, float] = {}
    for label, architecture in architectures(models).items():
        model = architecture.build(context.seed).to(context.device, DTYPES[dtype]).eval()
        crops = torch.from_numpy(photo_crops(images, architecture.side(model), context.seed))
        pixels = crops.permute(0, 3, 1, 2).contiguous()
        x = pixels.to(context.device, DTYPES[dtype]) / 127.5 - 1
        group = group_on(x)
        with torch.inference_mode():
            logits = require_finite(model(x), "logits")
            moved = torch.stack([model(group.on_input(x, element)) for element in group.elements])
            require_finite(moved, "logits")
        changes = (moved - logits).abs().amax(dim=2)  # (elements, images)
        error = changes.max().item()
        values[f"{label}/equal"] = 100 * (changes == 0).double().mean().item()
        values[f"{label}/error"] = error
        values[f"{label}/relative"] = error / logits.abs().max().item()
    return values
