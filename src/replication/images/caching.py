"""The samples of `TrainingSamples`, computed faster: deterministic steps run once per image.

A transform is a sequence of steps, some of which draw random numbers. Deterministic steps are moved
to the front where this does not change a bit of the result (`split`), and their result is cached
for each image. PIL images are turned into normalised tensors several at a time. Tests check that
each sample equals that of `TrainingSamples`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from timm.data.transforms import MaybeToTensor
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms import (
    CenterCrop,
    Compose,
    Normalize,
    Pad,
    RandomHorizontalFlip,
    RandomVerticalFlip,
    Resize,
)

from replication.images.loading import TrainingSamples, preserved_generators, seed_for
from replication.images.transforms import Cut, SteppedCrop

if TYPE_CHECKING:
    from replication.images.loading import Key
    from replication.images.transforms import Transform

Step = Callable[[Any], Any]
Kept = dict[int, tuple[Any, int]]
"""Results of the fixed steps with their labels, by index in the dataset."""

KEPT_BYTES = 2**28
"""Largest size of a cache in bytes (256 MiB): larger ones are not filled. Each worker has one."""

TO_TENSOR = (MaybeToTensor, Normalize)  # change each pixel by itself
FIXED = (Resize, CenterCrop, Pad, *TO_TENSOR)
MOVES = (Cut, RandomHorizontalFlip, RandomVerticalFlip)  # only move pixels


def split(transform: Transform) -> tuple[list[Step], list[Step]]:
    """Split a transform into deterministic steps and the steps to take after them.

    Crops and flips only move pixels, so the steps of `TO_TENSOR` may be taken before them.
    """
    fixed: list[Step] = []
    drawn: list[Step] = []
    for step in _steps(transform):
        passing: tuple[type, ...] = FIXED
        if drawn:
            passing = TO_TENSOR if all(isinstance(before, MOVES) for before in drawn) else ()
        (fixed if isinstance(step, passing) else drawn).append(step)
    return fixed, drawn


def _steps(transform: Transform) -> Iterator[Step]:
    for step in transform.transforms if isinstance(transform, Compose) else [transform]:
        yield from [step.pad, step.cut] if isinstance(step, SteppedCrop) else [step]


class ImageSteps:
    """Steps for several images: `of_each` for one image, then `finish`, which makes all tensors.

    If the steps end with those of `TO_TENSOR`, `finish` takes these for all images together.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        together = tuple(map(type, steps[-2:])) == TO_TENSOR
        self.of_each = Compose(steps[:-2] if together else steps)
        self.normalize = steps[-1] if together else None

    def finish(self, images: Sequence[Any]) -> Sequence[Any]:
        """Turn results of `of_each` into tensors, if the steps end with those of `TO_TENSOR`."""
        if self.normalize is None or not images:
            return images
        pixels = torch.from_numpy(np.stack([np.asarray(image) for image in images]))
        batch = pixels.permute(0, 3, 1, 2).contiguous().to(torch.get_default_dtype()).div(255)
        views: Sequence[Tensor] = self.normalize(batch).unbind()
        return views


class KeptSamples(TrainingSamples):
    """`TrainingSamples` of a dataset that draws no random numbers itself.

    `kept` is the cache; it stays empty if the dataset is too large (`KEPT_BYTES`).
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        transform: Transform,
        seed: int,
        repeats: int = 1,
    ) -> None:
        super().__init__(dataset, transform, seed, repeats)
        fixed, drawn = split(transform)
        self.fixed, self.drawn, self.draws = ImageSteps(fixed), ImageSteps(drawn), bool(drawn)
        self.kept: Kept = {}

    def __getitems__(self, keys: Sequence[Key]) -> list[tuple[Tensor, int]]:
        """Fetch several samples, equal to those of `TrainingSamples`."""
        images = self._fixed([key[1] for key in keys])
        if not self.draws:
            return images
        views = []
        with preserved_generators():
            for key, (image, _) in zip(keys, images, strict=True):
                seed_for(self.seed, *key)
                # A copy, as random erasing changes its image in place.
                copy = image.clone() if isinstance(image, Tensor) else image
                views.append(self.drawn.of_each(copy))
        labels = [label for _, label in images]
        return list(zip(self.drawn.finish(views), labels, strict=True))

    def _fixed(self, indices: Sequence[int]) -> list[tuple[Any, int]]:
        """Return the results of the fixed steps for images, with their labels."""
        new = [index for index in dict.fromkeys(indices) if index not in self.kept]
        pairs: list[tuple[Any, int]] = [self.dataset[index] for index in new]
        images = self.fixed.finish([self.fixed.of_each(image) for image, _ in pairs])
        labels = [label for _, label in pairs]
        made: Kept = dict(zip(new, zip(images, labels, strict=True), strict=True))
        if made and max(map(_bytes, images)) * len(self) <= KEPT_BYTES:
            self.kept.update(made)
        return [self.kept[index] if index in self.kept else made[index] for index in indices]


def _bytes(image: Any) -> int:
    """Return the memory of an image in bytes."""
    if isinstance(image, Image.Image):
        return 4 * image.width * image.height  # Pillow's RGB has four bytes a pixel
    return image.nbytes
