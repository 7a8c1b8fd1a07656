"""Fetch a dataset: download its files, and unpack those that are archives.

An archive is unpacked into a temporary folder, whose content is then moved. So files with their
final names are complete, and an interrupted fetch can be repeated.
"""

from __future__ import annotations

import gzip
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replication.config.functions import import_function
from replication.datasets.download import alone, download, writing
from replication.datasets.verify import verify
from vitrail.errors import VitrailError

if TYPE_CHECKING:
    from replication.config.datasets import DatasetInfo

ZIPS, TARS = (".zip",), (".tar", ".tar.gz", ".tgz")
DAMAGED = (
    *(shutil.ReadError, tarfile.TarError, zipfile.BadZipFile),
    *(gzip.BadGzipFile, zlib.error, EOFError),
)


def fetch(info: DatasetInfo, root: Path) -> dict[str, int]:
    """Find a dataset below the data root, or download or generate it.

    Files placed by hand where the download would put them are used. A dataset that we generate
    (source ``made``) is always generated anew, which takes seconds, so that no older version
    remains.

    Returns:
        the number of images of each split.

    Raises:
        VitrailError: the dataset must be placed by hand and is not there, no mirror serves it, its
            files are damaged, or the disk is full or not writable.
    """
    folder = root / info.folder
    if info.source != "made":
        try:
            return verify(info, root)
        except VitrailError:
            if info.source != "download":
                raise
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with alone(folder / ".fetching", f"into {folder}"):
        for file in info.files:
            archive = folder / file.name
            try:
                download(file, archive)
            except VitrailError as error:
                if archive.exists():
                    raise
                raise VitrailError(
                    f"dataset '{info.name}': {error}, or the tree as {folder}/{info.layout}"
                ) from None
        for file in info.files:
            _unpack(folder / file.name)
        if info.prepare:
            with _replacing(folder) as made:
                import_function(info.prepare, "configs/datasets.yaml")(info, folder, made)
    return verify(info, root)


def _unpack(archive: Path) -> None:
    """Unpack an archive into its own folder; do nothing with files that are not archives."""
    if not archive.name.endswith((*ZIPS, *TARS)):
        return
    safely: Any = {"filter": "data"} if archive.name.endswith(TARS) else {}
    with _replacing(archive.parent) as temporary:
        try:
            shutil.unpack_archive(archive, temporary, **safely)
        except DAMAGED as error:
            raise VitrailError(
                f"cannot unpack {archive} ({error}); delete it and fetch it again"
            ) from error


@contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    """Yield an empty temporary folder; at the end of the block, move its items into `folder`.

    An item replaces a file or folder of the same name.
    """
    for leftover in folder.glob(".unpacking-*"):
        shutil.rmtree(leftover)
    with (
        writing(folder),
        tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder) as temporary,
    ):
        yield Path(temporary)
        for item in Path(temporary).iterdir():
            target = folder / item.name
            if target.is_dir():
                shutil.rmtree(target)
            item.replace(target)
