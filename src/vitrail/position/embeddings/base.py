"""Interface of all position embeddings, base class of additive ones, `lookup` for relative ones.

The one idea: an embedding acts on the model in three places only (it adds to the tokens, rotates
queries and keys, biases attention scores), and in each it can give every image of a batch its own
permutation of positions. Under row b's permutation p, token n has the position of token ``p[n]``.
This permutation is the shuffle by which Position-SHAP removes the position embedding (Sec. 3).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vitrail.errors import VitrailError

Size = tuple[int, int]
Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Layout:
    """What an embedding has to know of its model."""

    grid: Size  # (h, w), patches down and across
    class_token: bool  # before the patches
    embed_dim: int  # D, channels of a token
    depth: int
    num_heads: int  # H

    @property
    def num_patches(self) -> int:
        """Patches of an image, ``h w``."""
        return self.grid[0] * self.grid[1]

    @property
    def head_dim(self) -> int:
        """Channels of a head, d."""
        return self.embed_dim // self.num_heads

    def coordinates(self) -> Tensor:
        """Return the patches' (x, y) as whole numbers, row by row of the image: ``(h w, 2)``."""
        height, width = self.grid
        return torch.cartesian_prod(torch.arange(height), torch.arange(width)).flip(1)

    def require_divisible(self, name: str, channels: int, by: int) -> None:
        """Refuse a number of channels that an embedding cannot split.

        Raises:
            VitrailError: `channels` is no multiple of `by`.
        """
        if channels % by:
            raise VitrailError(
                f"embedding '{name}' splits channels by {by}, which {channels} (of embed_dim "
                f"{self.embed_dim}, {self.num_heads} heads) are not: change embed_dim or num_heads"
            )


class PositionEmbedding(nn.Module):
    """No embedding: the ViT then sees a set of patches. The others override what they do.

    Attributes:
        qkv_bias: whether a model with this embedding has biases on queries, keys and values.
        positions: N, how many positions a permutation permutes; by default the patches'.
    """

    qkv_bias = True

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout = layout
        self.positions = layout.num_patches
        for name, value in self.constants().items():
            self.register_buffer(name, value, persistent=False)

    def constants(self) -> dict[str, Tensor]:
        """Return the tensors that follow from the layout alone, by the names of their buffers."""
        return {}

    @torch.no_grad()
    def init_non_persistent_buffers(self) -> None:
        """Compute the constants again, which no checkpoint has and `to_empty` leaves undefined.

        The name is timm's, whose `reinit_non_persistent_buffers` calls it.
        """
        for name, value in self.constants().items():
            self.get_buffer(name).copy_(value)

    def resampled(self, weights: Weights, grid: Size | None) -> Weights:
        """Resample weights made for another image size. By default they are returned unchanged.

        Args:
            weights: of an embedding of this kind, by their names in it.
            grid: the patches (down, across) of that image size; None if they are a square.
        """
        return weights

    def add(self, x: Tensor, permutation: Tensor | None) -> Tensor:
        """Embed tokens ``(B, T, D)`` before the first layer.

        Args:
            x: CLS first if there is one, then the patches.
            permutation: ``(B, N)``, or None for the identity.
        """
        return x

    def rotate(
        self, q: Tensor, k: Tensor, layer: int, permutation: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Change a layer's queries and keys ``(B, H, T, d)``."""
        return q, k

    def bias(self, q: Tensor, layer: int, permutation: Tensor | None) -> Tensor | None:
        """Return what is added to a layer's scaled scores, ``(B or 1, H, T, T)``, or None.

        Args:
            q: the layer's queries ``(B, H, T, d)``, not scaled.
            layer: its index.
            permutation: ``(B, N)``, or None for the identity.
        """
        return None


class AdditiveEmbedding(PositionEmbedding, ABC):
    """An embedding P that is added to the tokens, or to the patches alone (position, Eq. 2)."""

    @abstractmethod
    def table(self, batch: int) -> Tensor:
        """Return the embeddings of the last N tokens, ``(N, D)``, or ``(batch, N, D)``."""

    def content(self, patches: Tensor) -> Tensor:
        """Return what the table is added to, ``(B, N, D)``."""
        return patches

    def add(self, x: Tensor, permutation: Tensor | None) -> Tensor:
        """Add the table, its rows shuffled by the permutation, if any (position, Sec. 3)."""
        table = self.table(x.shape[0])
        if permutation is not None:
            table = table.expand(x.shape[0], -1, -1).take_along_dim(permutation.unsqueeze(-1), 1)
        without = x.shape[1] - self.positions
        embedded = self.content(x[:, without:]) + table  # Y = Linear(X^P) + P (Eq. 2)
        return torch.cat([x[:, :without], embedded], dim=1) if without else embedded


def lookup(scores: Tensor, index: Tensor, permutation: Tensor | None) -> Tensor:
    """Give each pair of tokens the score of its relation.

    Args:
        scores: ``(B, H, N, R)``, of each query and each of R relations.
        index: ``(N, N)``, the relation of each pair of positions.
        permutation: ``(B, N)``, or None for the identity.

    Returns:
        ``(B, H, N, N)``.
    """
    if permutation is not None:
        index = index[permutation.unsqueeze(2), permutation.unsqueeze(1)]
    return scores.gather(-1, index.unsqueeze(-3).expand(*scores.shape[:-1], -1))
