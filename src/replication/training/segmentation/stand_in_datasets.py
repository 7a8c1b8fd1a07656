"""The stand-in with masks, which is composed in memory, as a dataset class for mmseg.

MMSegmentation reads files. `ComposedFiles` shows it those of a folder that is not there:

    composed://<module>:<function>/<part>/<seed>/{images,annotations}/{train,val}/<number>.png

It is a separate module, as results on real datasets do not depend on how scenes are drawn.
"""

from __future__ import annotations

import io
import posixpath
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mmengine.fileio import BaseStorageBackend, register_backend
from mmseg.datasets import BaseSegDataset
from mmseg.registry import DATASETS
from PIL import Image

from replication.config.functions import import_function
from replication.datasets.stand_ins.patchwork import CLASSES, PALETTE
from replication.images.opening import TUNING, Split

if TYPE_CHECKING:
    from replication.config.datasets import DatasetInfo

PREFIX = "composed"


def composed_root(info: DatasetInfo, seed: int) -> str:
    """Return the name of the virtual folder of a stand-in's scenes for a seed."""
    return f"{PREFIX}://{info.loader}/{info.part}/{seed}"


class ComposedFiles(BaseStorageBackend):
    """Return scenes as PNG files: an image, or a mask with the value c + 1 for class c."""

    def get(self, filepath: str) -> bytes:
        """Return the PNG file of an image or a mask."""
        *root, kind, split, file = filepath.split("/")
        image, mask = _scenes("/".join(root), split)[int(file.removesuffix(".png"))]
        buffer = io.BytesIO()
        picture = image if kind == "images" else Image.fromarray(mask + 1)
        picture.save(buffer, "png", compress_level=1)
        return buffer.getvalue()

    def get_text(self, filepath: str) -> str:
        """Raise ValueError: there are no files of text."""
        raise ValueError(f"{filepath} is a picture")

    def join_path(self, path: str, *below: str) -> str:
        """Return the path of a file or folder below another."""
        return posixpath.join(path, *below)

    def list_dir_or_file(self, dir_path: str, *_: Any) -> Iterator[str]:
        """Yield the file names of the images or masks of a split."""
        *root, _kind, split = dir_path.split("/")
        for number in range(len(_scenes("/".join(root), split))):
            yield f"{number:04d}.png"


register_backend(PREFIX, ComposedFiles, prefixes=PREFIX)


@lru_cache(maxsize=4)
def _scenes(root: str, split: Split) -> Any:
    """Compose the scenes of a split, once in each process."""
    loader, part, seed = root.removeprefix(f"{PREFIX}://").rsplit("/", 2)
    own = split if part == "all" else TUNING[split]
    return import_function(loader, root)(None, own, int(seed))


@DATASETS.register_module()
class PatchworkDataset(BaseSegDataset):
    """Squares of regions of photographs (`replication.datasets.stand_ins.patchwork`)."""

    METAINFO = {"classes": CLASSES, "palette": [list(color) for color in PALETTE]}

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(img_suffix=".png", seg_map_suffix=".png", reduce_zero_label=True, **kwargs)
