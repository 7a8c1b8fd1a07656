"""Count the operations of a forward pass, of architectures and of trained models."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch

from replication.context import Context, Trained, Values, passes
from replication.measures.parameters import architectures
from replication.measures.parameters import count as count_parameters
from vitrail.measures.flops import count


def flops(context: Context, models: Mapping[str, Mapping[str, Any]]) -> Values:
    """Count the operations of `models`, fields of `Architecture` for each label, on one image.

    Source: octic, App. E.4.

    Returns:
        ``"<label>/..."`` with ``gmacs`` (10^9, counted as the papers do), ``gmacs_unfused`` (the
        same with attention written out as single operations, so that its softmax counts, too),
        ``gmacs_matmul`` (10^9 multiply-adds of matrix products and convolutions only), ``gflops``
        (twice that, as torch counts), ``parameters``, ``millions`` (of parameters).

    Raises:
        VitrailError: a model does not exist or refuses its arguments.
    """
    values: dict[str, float] = {}
    for label, architecture in architectures(models).items():
        with torch.device("meta"):
            model = architecture.build(context.seed).eval()
            side = architecture.side(model)
            found = count(model, torch.empty(1, 3, side, side))
        values |= {
            f"{label}/gmacs": found.macs / 1e9,
            f"{label}/gmacs_unfused": (found.macs + found.attention) / 1e9,
            f"{label}/gmacs_matmul": found.products / 1e9,
            f"{label}/gflops": 2 * found.products / 1e9,
        }
        values |= {f"{label}/{unit}": number for unit, number in count_parameters(model).items()}
    return values


@passes(0)
def flops_of_trained(trained: Trained) -> Values:
    """Count the operations of a run's model on one image of its size (octic, Figure 1).

    Returns:
        ``gmacs`` (10^9), counted as the papers do.
    """
    side = trained.recipe.data.image_size
    model = copy.deepcopy(trained.model).to("meta")
    return {"gmacs": count(model, torch.empty(1, 3, side, side, device="meta")).macs / 1e9}
