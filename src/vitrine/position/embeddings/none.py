"""No position embedding: the ViT then sees a set of patches."""

from __future__ import annotations

from vitrine.position.embeddings.base import PositionEmbedding


class NoEmbedding(PositionEmbedding):
    """Does nothing, so a permutation changes nothing either."""
