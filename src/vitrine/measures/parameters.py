"""How many parameters models have.

A file of its own, since the name of a measurement holds that of its module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from vitrine.measures.architecture import architectures
from vitrine.measures.context import Context, Values


def parameters(context: Context, models: Mapping[str, Mapping[str, Any]]) -> Values:
    """Count the parameters of `models`, fields of `Architecture` by label, with their heads.

    Returns:
        ``"<label>/parameters"`` and the same in ``"<label>/millions"``.

    Raises:
        VitrineError: a model does not exist or refuses its arguments.
    """
    return {
        f"{label}/{unit}": value
        for label, architecture in architectures(models).items()
        for unit, value in count(architecture.build(context.seed)).items()
    }


def count(model: nn.Module) -> dict[str, float]:
    """Count the elements of all parameters (buffers are none): ``parameters``, ``millions``."""
    number = sum(parameter.numel() for parameter in model.parameters())
    return {"parameters": number, "millions": number / 1e6}
