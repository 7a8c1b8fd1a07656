"""Is a dataset whole?

The layout (files and class folders) is checked whenever a dataset is opened; the numbers of
images once, before any job starts, so that a training of days does not find out on its last day.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vitrine.data.layout import check_counts, check_layout, check_mask_counts
from vitrine.data.opening import SPLITS, build
from vitrine.errors import VitrineError

if TYPE_CHECKING:
    from vitrine.plan.datasets import DatasetInfo


def verify(info: DatasetInfo, root: Path, counts: bool = True) -> dict[str, int]:
    """Check that a dataset lies below the data root as its entry says.

    Args:
        info: the dataset.
        root: the data root; the dataset is in its subfolder ``info.folder``.
        counts: also count classes, images and masks (a miniature has fewer).

    Returns:
        Number of images that each split must have, and with `counts` has.

    Raises:
        VitrineError: something is missing or misplaced; says what, and how to put it right.
    """
    check_layout(info, root)
    expected = {"train": info.train_images, "val": info.val_images}
    if counts and info.segmentation:
        check_mask_counts(info, info.segmentation, root)
    elif counts and info.images:
        for images in info.images:
            check_counts(info, images, root)
    elif counts:  # a few large files: only their reader can count
        for split in SPLITS:
            found = len(build(info, split, root))  # type: ignore[arg-type]  # torch's Dataset
            if found != expected[split]:
                raise VitrineError(
                    f"the {split} split of '{info.name}' has {found} images instead of "
                    f"{expected[split]}; move {root / info.folder} away and fetch it again"
                )
    return expected
