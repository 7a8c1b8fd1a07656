"""Octic patch embedding (Sec. 3.3.1): a convolution whose filters turn with the image.

Six banks of free quarter filters, unfolded to the filters of the eight planes (Fig. 6 shows learned
ones). The factors keep the filters of all irreps at the length that the quarters have.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from vitrine.errors import VitrineError
from vitrine.octic.linear import octic_channels
from vitrine.octic.quarters import unfold_quarters

_SCALES = [math.sqrt(2) / 4] * 4 + [1 / 2] * 4


class OcticPatchEmbed(nn.Module):
    """Equivariant patch embedding, ``(B, I, H, W)`` to ``(8, B, N, c)``.

    Attributes:
        weight: ``(6, c, I, p/2, p/2)`` of A1, A2, B1, B2 and E's two copies.
        bias: ``(c)`` of A1.
        grid_size: patches (down, across) of an image of the usual size.
    """

    def __init__(
        self, img_size: int = 224, patch_size: int = 16, in_chans: int = 3, embed_dim: int = 768
    ) -> None:
        """Build it with torch's initial weights of a convolution.

        Args:
            img_size: side of the usual image.
            patch_size: p, even.
            in_chans: I, channels of the image.
            embed_dim: C, channels of all planes together.

        Raises:
            VitrineError: `patch_size` is odd, or `embed_dim` is no multiple of 8.
        """
        super().__init__()
        if patch_size % 2:
            raise VitrineError(f"octic patches have {patch_size} pixels; give an even patch_size")
        c, q = octic_channels(embed_dim), patch_size // 2
        self.patch_size = (patch_size, patch_size)
        self.grid_size = (img_size // patch_size, img_size // patch_size)
        self.weight = nn.Parameter(torch.empty(6, c, in_chans, q, q))
        self.bias = nn.Parameter(torch.empty(c))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights as torch draws those of a convolution by one quarter."""
        bound = 1 / math.sqrt(self.weight[0, 0].numel())
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def filters(self) -> Tensor:
        """Return the filters of the eight planes ``(8, c, I, p, p)``."""
        scales = self.weight.new_tensor(_SCALES).view(8, 1, 1, 1, 1)
        return scales * unfold_quarters(self.weight)

    def forward(self, images: Tensor) -> Tensor:
        """Embed images whose sides are multiples of the patch's."""
        bias = functional.pad(self.bias, (0, 7 * len(self.bias)))
        x = functional.conv2d(images, self.filters().flatten(0, 1), bias, self.patch_size)
        return x.unflatten(1, (8, -1)).flatten(3).permute(1, 0, 3, 2)
