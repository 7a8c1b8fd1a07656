"""Fetch a dataset: download its files, and unpack those that are archives.

An archive is unpacked into a temporary folder, whose content is then moved. So files with their
final names are complete, and an interrupted fetch can be repeated.
"""

from __future__ import annotations

import gzip
import json
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from replication.config.functions import import_function
from replication.datasets.download import alone, download, writing, wrong
from replication.datasets.verify import verify
from vitrail.errors import VitrailError
from vitrail.files import write_atomically

if TYPE_CHECKING:
    from replication.config.datasets import DatasetInfo

DAMAGED = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError)


def fetch(info: DatasetInfo, root: Path) -> dict[str, int]:
    """Find a dataset below the data root, or download or generate it.

    Files placed by hand where the download would put them are used. The folder holds a note of the
    files' digests; a file whose digest in the entry has changed since is downloaded again. A
    dataset that we generate (source ``made``) is always generated anew, which takes seconds, so
    that no older version remains.

    Returns:
        the number of images of each split.

    Raises:
        VitrailError: the dataset must be placed by hand and is not there, no mirror serves it, its
            files are damaged, or the disk is full or not writable.
    """
    folder = root / info.folder
    digests, note = {file.name: list(file.checksum) for file in info.files}, _note(folder, info)
    before = _noted(note, digests) if info.files else digests
    if info.source != "made" and before == digests:
        try:
            found = verify(info, root)
        except VitrailError:
            if info.source != "download":
                raise
        else:
            if info.files and not note.is_file():
                with suppress(OSError):  # another user's folder may be read-only
                    write_atomically(note, json.dumps(digests))
            return found
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with alone(folder / ".fetching", f"into {folder}"):
        for file in info.files:
            archive = folder / file.name
            changed = before.get(file.name) != digests[file.name] and archive.is_file()
            if changed and wrong(archive, file):
                archive.unlink()
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
        if info.files:
            with writing(note):
                write_atomically(note, json.dumps(digests))
    return verify(info, root)


def _note(folder: Path, info: DatasetInfo) -> Path:
    """Return the path of the note: digests by which the files were downloaded or first verified."""
    return folder / f".fetched-{info.name}.json"


def _noted(note: Path, digests: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the digests in a note; `digests` if there is no note, {} if it is damaged."""
    try:
        found: Any = json.loads(note.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return dict(digests)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _unpack(archive: Path) -> None:
    """Unpack an archive into its own folder; do nothing with files that are not archives."""
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
