"""The digest of a dataset: the SHA-256 of its decoded images and their labels, in its order.

It does not depend on where the files came from (the publisher's archive, a mirror, files placed by
hand). It changes if an image, a label, their order or the split changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from replication.images.opening import SPLITS, build
from vitrail.errors import VitrailError

if TYPE_CHECKING:
    from pathlib import Path

    from PIL import Image

    from replication.config.datasets import DatasetInfo


def images_sha256(images: Iterable[tuple[Image.Image, bytes]]) -> str:
    """Return the SHA-256 of images in their order, in hex digits.

    For each image these bytes are hashed: its height and its width, as little-endian integers of 4
    bytes; its pixels by rows (3 bytes each if it is RGB); and the bytes in the second item of its
    tuple, which are empty, or those of its label or mask.
    """
    digest = hashlib.sha256()
    for image, label in images:
        for side in (image.height, image.width):
            digest.update(side.to_bytes(4, "little"))
        digest.update(image.tobytes())
        digest.update(label)
    return digest.hexdigest()


def dataset_sha256(info: DatasetInfo, root: Path) -> str:
    """Return the SHA-256 of all images of a dataset with their labels, in hex digits.

    The training split comes first, then the validation split, as the loader opens them (with seed 0
    if the split depends on the seed). A label is hashed as a little-endian integer of 4 bytes, a
    mask by its bytes by rows. Raises VitrailError if an image cannot be read.
    """
    return images_sha256(_samples(info, root))


def check_digest(info: DatasetInfo, root: Path) -> None:
    """Check a dataset against the digest of its registry entry, if the entry has one.

    Raises VitrailError if the digests differ, or as `dataset_sha256`.
    """
    if info.digest is None or (found := dataset_sha256(info, root)) == info.digest:
        return
    raise VitrailError(
        f"dataset '{info.name}' in {root / info.folder} has other images, labels or another order "
        f"than its entry in the registry says: their SHA-256 is {found} instead of {info.digest}; "
        f"move that folder away, then run `vitrail fetch {info.name} --data {root}`"
    )


def _samples(info: DatasetInfo, root: Path) -> Iterator[tuple[Image.Image, bytes]]:
    for split in SPLITS:
        dataset = build(info, split, root)
        for index in range(len(dataset)):  # type: ignore[arg-type]  # torch's Dataset
            image, label = dataset[index]
            of_mask = isinstance(label, np.ndarray)
            yield image, label.tobytes() if of_mask else int(label).to_bytes(4, "little")
