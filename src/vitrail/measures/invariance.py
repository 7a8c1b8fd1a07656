"""Measure how much logits change when elements of a group transform the images."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from vitrail.measures.equivariance import Group
from vitrail.measures.outputs import require_finite


class Change(NamedTuple):
    """The difference between logits f(g x) of transformed images and transformed logits g f(x)."""

    equal: float  # percent of moved images whose logits have the same bits
    error: float  # the largest change of a logit
    relative: float  # the same over the largest logit
    changed: float  # percent of predictions that change, of images or of pixels


@torch.inference_mode()
def change_under(forward: Callable[[Tensor], Tensor], group: Group, x: Tensor) -> Change:
    """Compare logits f(g x) of transformed images with transformed logits g f(x).

    Args:
        forward: f, from images ``(B, 3, H, W)`` to logits ``(B, classes)``, or for each pixel
            ``(B, classes, H, W)``.
        group: the elements g, and their actions on images and logits.
        x: the images.

    Raises:
        VitrailError: a logit is not finite.
    """
    logits = require_finite(forward(x), "logits")
    equal, errors, changed = [], [], []
    for element in group.elements:
        moved = require_finite(forward(group.on_input(x, element)), "logits")
        expected = group.on_output(logits, element)
        differences = (moved - expected).abs().flatten(1).amax(dim=1)  # (B,)
        equal.append((differences == 0).double().mean())
        errors.append(differences.max())
        changed.append((moved.argmax(dim=1) != expected.argmax(dim=1)).double().mean())
    error = torch.stack(errors).max().item()
    return Change(
        equal=100 * torch.stack(equal).mean().item(),
        error=error,
        relative=error / logits.abs().max().item(),
        changed=100 * torch.stack(changed).mean().item(),
    )
