"""Opening a dataset: its entry in the registry names the function that reads its files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vitrine.data.layout import check_layout
from vitrine.errors import VitrineError
from vitrine.plan.functions import import_function

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from vitrine.plan.datasets import DatasetInfo

Split = Literal["train", "val"]
SPLITS: tuple[Split, ...] = ("train", "val")


def build(info: DatasetInfo, split: Split, root: Path) -> Dataset[Any]:
    """Open one split of the dataset that lies in ``root / info.folder``.

    Returns:
        A sized dataset of (`PIL.Image.Image` in RGB, int label).

    Raises:
        VitrineError: the dataset is not there, or its files cannot be read.
    """
    check_layout(info, root)
    open_split = import_function(info.loader, "configs/datasets.yaml")
    folder = root / info.folder
    try:
        dataset: Dataset[Any] = open_split(folder, split)
    except Exception as error:
        # A damaged pickle or .mat file fails in as many ways as it has bytes.
        raise VitrineError(
            f"dataset '{info.name}' in {folder} cannot be read "
            f"({type(error).__name__}: {error}); move that folder away and fetch it again"
        ) from error
    return dataset
