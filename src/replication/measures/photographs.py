"""Real photographs for measures that need no labels, identified by one digest.

A measure on photographs names their dataset in its `datasets`, calls `photographs`, and returns
their number and digest as ``"photographs"`` and ``"sha256"``, so that its record identifies the
images. A scale that does not have the images leaves out such measures (``null`` in its `datasets`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, overload

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import InterpolationMode, RandomResizedCrop, functional

from replication.context import Context
from replication.datasets.digest import images_sha256
from replication.images.opening import build
from vitrail.errors import VitrailError
from vitrail.measures.loading import evenly_spread
from vitrail.seeding import derive

BICUBIC = InterpolationMode.BICUBIC


class Photographs(Sequence[Image.Image]):
    """Images of a dataset at given indices, RGB, decoded at each access."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self._dataset, self._indices = dataset, indices

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> Image.Image: ...
    @overload
    def __getitem__(self, index: slice) -> Photographs: ...
    def __getitem__(self, index: int | slice) -> Image.Image | Photographs:
        if isinstance(index, slice):
            return Photographs(self._dataset, self._indices[index])
        image: Image.Image = self._dataset[self._indices[index]][0]
        return image

    @functools.cached_property
    def sha256(self) -> str:
        """SHA-256 of all images in their order, without labels, in hex (`images_sha256`)."""
        return images_sha256((image, b"") for image in self)

    def batches(self, size: int) -> Iterator[Photographs]:
        """Yield the photographs in groups of `size`, the last of which may be smaller."""
        for start in range(0, len(self), size):
            yield self[start : start + size]


def photographs(context: Context, count: int, dataset: int = 0) -> Photographs:
    """Return `count` photographs, spread evenly over the validation split of a dataset.

    Args:
        context: the measure's context, with its `datasets` and the data root.
        count: how many photographs.
        dataset: index of the dataset in `context.datasets`.

    Raises:
        VitrailError: the dataset is not there, cannot be read, or has fewer images.
    """
    info = context.datasets[dataset]
    images: Any = build(info, "val", context.data_root)
    if not 1 <= count <= len(images):
        raise VitrailError(
            f"the measure asks for {count} photographs and the validation split of '{info.name}' "
            f"in {context.data_root / info.folder} has {len(images)} images; ask for 1 to "
            f"{len(images)}"
        )
    return Photographs(images, evenly_spread(len(images), count))


def crops(photos: Sequence[Image.Image], size: int, seed: int) -> Tensor:
    """Take a random crop of each photograph as in training, and scale it: ``(N, 3, size, size)``.

    Each has 8 to 100 % of the area and an aspect ratio from 3/4 to 4/3 (Szegedy et al., "Going
    Deeper with Convolutions", 2015), is scaled bicubically, and has values in [0, 1]. The crops
    depend on the seed and the photographs only.
    """
    crop = RandomResizedCrop(size, interpolation=BICUBIC)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive("crops of photographs", seed))
        return torch.stack([functional.to_tensor(crop(photo)) for photo in photos])


def centres(photos: Sequence[Image.Image], size: int, crop_pct: float = 1.0) -> Tensor:
    """Scale the short side of each photograph to `size` / `crop_pct` pixels and crop the centre.

    The quotient is rounded down, as in timm's evaluation. Photographs are scaled bicubically;
    smaller ones are enlarged. Returns ``(N, 3, size, size)`` in [0, 1].
    """
    scaled = (functional.resize(photo, [int(size / crop_pct)], BICUBIC) for photo in photos)
    return torch.stack([functional.to_tensor(functional.center_crop(x, [size])) for x in scaled])
