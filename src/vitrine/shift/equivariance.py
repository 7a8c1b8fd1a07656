"""Is it truly shift-invariant? Random circular shifts, and the largest change of a logit."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitrine.shift.polyphase import roll_image


@torch.inference_mode()
def invariance_error(model: nn.Module, images: Tensor, shifts: int = 4, seed: int = 0) -> float:
    """Return the largest change of any logit under random circular shifts of the images.

    Args:
        model: ``(B, C, H, W)`` to ``(B, classes)``; used in evaluation mode.
        images: each is shifted by an offset of its own.
        shifts: how many times.
        seed: of the offsets.

    Returns:
        about 1e-13 for an equivariant model in float64, about 1e-5 in float32.
    """
    was_training = model.training
    model.eval()
    generator = torch.Generator().manual_seed(seed)
    sides = torch.tensor(images.shape[2:])
    logits = model(images)
    error = 0.0
    for _ in range(shifts):
        draws = torch.rand(len(images), 2, generator=generator, dtype=torch.float64)
        offset = (draws * sides).long().to(images.device)
        shifted = model(roll_image(images, offset))
        error = max(error, (shifted - logits).abs().max().item())
    model.train(was_training)
    return error
