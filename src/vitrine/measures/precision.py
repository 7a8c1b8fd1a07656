"""The number format of a forward pass that is measured.

A file of its own, since it needs the training's code, which counts of parameters do not depend on.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch

from vitrine.errors import VitrineError, did_you_mean
from vitrine.training.step import HALF

Precision = Literal["fp32", "bf16", "fp16"]


def autocast(device: str, precision: Precision) -> torch.autocast:
    """Return the context in which a model runs in `precision`, as in training.

    Raises:
        VitrineError: there is no such precision.
    """
    if precision not in get_args(Precision):
        raise VitrineError(
            f"there is no precision '{precision}'{did_you_mean(precision, get_args(Precision))}"
        )
    half = HALF.get(precision)
    return torch.autocast(torch.device(device).type, half, enabled=half is not None)
