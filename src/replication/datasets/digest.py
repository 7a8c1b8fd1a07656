"""The digest of a dataset: that of its decoded images and their labels, in its own order.

It is the same whichever way the files came (an archive of the publisher, a mirror, files placed by
hand), and another one where an image, a label, their order or the split differs.
"""

# decides no number

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from replication.images.digest import images_sha256
from replication.images.opening import SPLITS, build
from vitrail.errors import VitrailError

if TYPE_CHECKING:
    from pathlib import Path

    from PIL import Image

    from replication.config.datasets import DatasetInfo


def dataset_sha256(info: DatasetInfo, root: Path) -> str:
    """Return the SHA-256 of all images of a dataset with their labels, in hex digits.

    They are those of its training split and then of its validation split, as its loader opens them
    (for seed 0, where the split depends on the seed). A label counts as a little-endian integer of
    4 bytes, a mask by its bytes by rows. Raises VitrailError if an image cannot be read.
    """
    return images_sha256(_samples(info, root))


def check_digest(info: DatasetInfo, root: Path) -> None:
    """Compare a dataset with the digest of its entry, if that has one.

    Raises VitrailError where an image or a label is another, or as `dataset_sha256`.
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
