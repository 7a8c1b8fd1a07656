"""How many images and optimiser steps there are: one rule, for those who plan and who train."""

from __future__ import annotations

from vitrail.errors import VitrailError

FIFTH = 5
"""Of what a search of learning rates, or of a classifier, trains on, every fifth is held out."""


def steps_per_epoch(images: int, size: int, drop_last: bool = True) -> int:
    """Return the number of batches of `size` images in an epoch of `images`.

    A short last batch counts unless `drop_last`.
    """
    return images // size if drop_last else -(-images // size)


def require_batches(images: int, size: int, micro: int, drop_last: bool = True) -> None:
    """Refuse batches that cannot be trained on.

    Raises VitrailError if there are fewer images than one batch, or so few in the last that a
    micro-batch would have less than two.
    """
    if images < size:
        raise VitrailError(
            f"the training split has {images} images, fewer than one batch of {size}; "
            f"set batch.size to at most {images}"
        )
    rest = images % size
    if not drop_last and rest and rest < 2 * (size // micro):
        raise VitrailError(
            f"the last batch of an epoch has {rest} of {images} images, too few for "
            f"{size // micro} micro-batches: set batch.drop_last, or another batch.size"
        )
