"""Is it truly invariant? The eight turns and mirrorings, and the largest change of a logit."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitrine.octic.group import ELEMENTS, transform


@torch.inference_mode()
def invariance_error(model: nn.Module, images: Tensor) -> float:
    """Return the largest change of any logit under the octic group.

    Args:
        model: ``(B, C, H, W)`` to ``(B, classes)``; used in evaluation mode.
        images: squares.

    Returns:
        about 1e-14 for an invariant model in float64, about 1e-5 in float32.
    """
    was_training = model.training
    model.eval()
    logits = model(images)
    changes = [(model(transform(images, element)) - logits).abs().max() for element in ELEMENTS]
    model.train(was_training)
    return torch.stack(changes).max().item()
