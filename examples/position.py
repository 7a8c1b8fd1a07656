"""Position-SHAP tells a model that needs position from one that does not (Sec. 3).

Two tiny Vision Transformers see the same images, a bright square in one of four corners. One is
trained to name the corner, the other the colour of the square.
"""

import torch
from torch.nn.functional import cross_entropy

from vitrail import position_shap
from vitrail.position.vit import PositionViT


def squares(count: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Draw images (N, 3, 16, 16) of noise with a square, its corner and its colour 0, 1 or 2."""
    images = 0.1 * torch.randn(count, 3, 16, 16)
    corner, colour = torch.randint(4, (count,)), torch.randint(3, (count,))
    for image, place, channel in zip(images, corner, colour, strict=True):
        top, left = 8 * (place // 2), 8 * (place % 2)
        image[channel, top : top + 8, left : left + 8] += 1
    return images, {"corner": corner, "colour": colour}


for task in ("corner", "colour"):
    torch.manual_seed(0)
    model = PositionViT(img_size=16, num_classes=4, embed_dim=32, depth=2, num_heads=2, drop_rate=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(100):
        images, labels = squares(64)
        optimizer.zero_grad()
        cross_entropy(model(images), labels[task]).backward()
        optimizer.step()
    images, labels = squares(100)
    result = position_shap(model.eval(), [*zip(images, labels[task].tolist(), strict=True)])
    right = 100 * result.correct.double().mean()
    print(f"{task}: {right:.0f} % right, P-SHAP {result.mean:.3f}")
