"""A network with one hidden layer, registered with timm."""

from timm.models import register_model
from torch import nn


@register_model
def template_mlp(
    pretrained: bool = False, num_classes: int = 10, width: int = 8, **timm_only: object
) -> nn.Module:
    """Map ``(B, 3, 8, 8)`` images to logits through `width` hidden units."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(192, width), nn.ReLU(), nn.Linear(width, num_classes)
    )
