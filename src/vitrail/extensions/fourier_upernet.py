"""UperNet on a harmonic Swin, equivariant to circular shifts by fractions of a pixel."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from vitrail.shift.upernet import UPerNet


class HarmonicUPerNet(UPerNet):
    """A `UPerNet` whose backbone sees recentred images (`RecentredModel`).

    The plain decoder returns logits at the pixels of the recentred image, and a Fourier shift moves
    them back. So they are equivariant to every circular shift of a band-limited image, also by
    fractions of a pixel. Arguments and errors are those of `UPerNet`.
    """

    def forward(self, images: Tensor) -> Tensor:
        """Return logits ``(B, classes, H, W)`` of images ``(B, 3, H, W)``."""
        model: Any = self.backbone["model"]
        maps, move = model.forward_moved(images)
        return move.back(self.decode_maps(maps, images))
