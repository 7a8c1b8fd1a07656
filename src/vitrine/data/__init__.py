"""Datasets: what they are, how to get them, and how their images become batches.

`build` opens a dataset as (PIL image, label) pairs, `verify` checks its files, `fetch` gets them.
Importing this package imports neither torch nor pydantic.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from vitrine.data.registry import DatasetInfo

Split = Literal["train", "val"]


def build(info: DatasetInfo, split: Split, root: Path) -> Dataset[Any]:
    """Open one split of a dataset below the data root.

    Returns:
        A sized dataset of (`PIL.Image.Image` in RGB, int label).
    """
    module, function = info.loader.split(":")
    dataset: Dataset[Any] = getattr(importlib.import_module(module), function)(
        root / info.folder, split
    )
    return dataset
