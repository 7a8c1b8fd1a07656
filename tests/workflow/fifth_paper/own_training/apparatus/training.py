"""The paper's own kind of training: a classifier learns from images under noise."""

from typing import Any

import torch
from torch import Tensor, nn


class Objective(nn.Module):
    """Cross-entropy of noisy images; the scale of the logits is learned beside the model."""

    def __init__(self, model: nn.Module, recipe: Any, classes: int) -> None:
        super().__init__()
        self.model, self.noise = model, recipe.noise
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of ``(B, 3, H, W)`` with labels ``(B,)``."""
        noisy = images + self.noise * images.std() * torch.randn_like(images)
        return nn.functional.cross_entropy(self.scale * self.model(noisy), labels)
