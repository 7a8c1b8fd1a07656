"""The images of the validation split on which a measure evaluates a trained model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset

from replication.context import Trained
from replication.images.loading import EvaluationSamples
from replication.images.opening import build
from replication.images.transforms import Transform, eval_transform
from vitrail.measures.loading import eval_loader, evenly_spread
from vitrail.measures.outputs import numbered


class Validation(NamedTuple):
    """Images of the validation split; `indices` also seed random draws for each image."""

    indices: Sequence[int]  # of the images in the split
    samples: Dataset[Any]  # (image (3, H, W), label), in the order of `indices`
    batches: DataLoader[Any]  # of `samples`


def validation(
    trained: Trained,
    view: Transform | None = None,
    batch_size: int = 128,
    images: int | None = None,
) -> Validation:
    """Open the validation split of a run.

    `view` is the transform, by default the recipe's evaluation transform. `images` is the number of
    images, spread evenly over the split; None is all.
    """
    dataset: Any = build(trained.info, "val", trained.data_root, trained.seed)
    chosen = evenly_spread(len(dataset), images)
    view = view or eval_transform(trained.recipe, trained.info)
    samples = EvaluationSamples(Subset(dataset, chosen), view)
    batches = eval_loader(samples, batch_size, trained.workers, trained.device)
    return Validation(chosen, samples, batches)


def validation_batches(
    trained: Trained, transform: Transform, batch_size: int, images: int | None
) -> Iterator[tuple[Sequence[int], Tensor, Tensor]]:
    """Yield for each batch its indices in the validation split, images on the device, labels."""
    indices, _, batches = validation(trained, transform, batch_size, images)
    yield from numbered(batches, trained.model, indices)
