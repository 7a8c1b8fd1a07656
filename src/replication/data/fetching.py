"""Getting a dataset: its files are downloaded, and unpacked if they are archives.

An archive is unpacked into a temporary folder and then moved. So whatever has its right name is
whole, and an interrupted fetch is repeated without harm.
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
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from replication.data.download import alone, download, writing
from replication.data.layout import verify
from vitrail.errors import VitrailError
from vitrail.naming import import_function

if TYPE_CHECKING:
    from replication.plan.datasets import DatasetInfo

DAMAGED = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError)


def fetch(info: DatasetInfo, root: Path) -> dict[str, int]:
    """Find a dataset below the data root, or download or make it; return each split's images.

    Files placed by hand where the download would put them are used. What is made is made anew:
    that takes seconds, and leaves no other version. Raises VitrailError if it must be placed by
    hand and is not there, no mirror serves it, what is there is damaged, or the disk is full or not
    writable.
    """
    if info.source != "made":
        try:
            return verify(info, root)
        except VitrailError:
            if info.source != "download":
                raise
    folder = root / info.folder
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with alone(folder / ".fetching", f"into {folder}"):
        for file in info.files:
            try:
                download(file, folder / file.name)
            except VitrailError as error:
                if (folder / file.name).exists():
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
    """Unpack an archive beside itself; files that are no archives stay as they are."""
    with _replacing(archive.parent) as temporary:
        try:
            if archive.suffix == ".zip":
                with zipfile.ZipFile(archive) as opened:
                    for name in map(PurePosixPath, opened.namelist()):
                        if name.is_absolute() or ".." in name.parts:
                            raise zipfile.BadZipFile(
                                f"it would write outside of its folder: {name}"
                            )
                    opened.extractall(temporary)
            elif archive.suffix in (".tgz", ".gz", ".tar"):
                with tarfile.open(archive) as tar:
                    tar.extractall(temporary, filter="data")
        except DAMAGED as error:
            raise VitrailError(
                f"cannot unpack {archive} ({error}); delete it and fetch it again"
            ) from error


@contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    """Give an empty folder, whose content then takes the place of what has its names."""
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
