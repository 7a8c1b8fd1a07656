"""Top-1 and top-5 accuracy on the validation split, with the recipe's evaluation transform."""

from __future__ import annotations

from replication.context import Trained, Values, passes
from replication.images.transforms import eval_transform
from replication.measures.packed_scores import BY_IMAGE, pack
from replication.measures.validation_split import validation
from vitrail.measures import accuracy as library


@passes(1)
def accuracy(trained: Trained, batch_size: int = 128, image_size: int | None = None) -> Values:
    """Measure accuracy on square images of `image_size` pixels, by default the recipe's own.

    The result does not depend on the batch size.

    Returns:
        ``top1``, ``top5`` (percent), ``images`` (their number) and ``top1 by image``, which
        `replication.measures.packed_scores.pack` made.
    """
    transform = eval_transform(trained.recipe, trained.info, image_size)
    found = library.accuracy(trained.model, validation(trained, transform, batch_size).batches)
    return {
        "top1": found.top1,
        "top5": found.top5,
        "images": len(found.right),
        f"top1{BY_IMAGE}": pack(found.right[:, 0].tolist()),
    }
