"""Getting a dataset: downloads that go on where they stopped, and are trusted by their hash.

A file is written as ``name.part``, hashed, and only then given its name; an archive is unpacked
into a temporary folder and then moved. So whatever has its right name is whole, and an
interrupted fetch is repeated without harm.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

from tqdm import tqdm

from vitrine.data.verification import verify
from vitrine.errors import VitrineError
from vitrine.plan.functions import import_function

if TYPE_CHECKING:
    from vitrine.plan.datasets import DatasetInfo, RemoteFile

TIMEOUT = 30.0  # seconds without a byte
CHUNK = 1 << 20
DAMAGED = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError)


class _MirrorFailed(Exception):
    """One mirror did not give the right bytes; the next may."""


def fetch(info: DatasetInfo, root: Path) -> dict[str, int]:
    """Make sure that a dataset is below the data root: find it there, or download or make it.

    Files placed by hand where the download would put them are used. What is made is made anew:
    that takes seconds, and leaves no other version.

    Returns:
        Number of images of each split.

    Raises:
        VitrineError: it must be placed by hand and is not there, no mirror serves it, what is
            there is damaged, or the disk is full or not writable.
    """
    if info.source != "made":
        try:
            return verify(info, root)
        except VitrineError:
            if info.source != "download":
                raise
    folder = root / info.folder
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        for file in info.files:
            _obtain(info, file, folder)
        for file in info.files:
            _unpack(folder / file.name)
        if info.prepare:
            with _replacing(folder) as made:
                import_function(info.prepare, "configs/datasets.yaml")(folder, made)
    return verify(info, root)


def _obtain(info: DatasetInfo, file: RemoteFile, folder: Path) -> None:
    """Leave the file in the dataset's folder, with the right hash."""
    target = folder / file.name
    if target.exists():
        if problem := _wrong(target, file):
            raise VitrineError(f"{target} is damaged or another file ({problem}); delete it")
        return
    with _writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    problems = []
    for url in file.url:
        try:
            _download(url, file, part)
        except _MirrorFailed as error:
            problems.append(f"{url}: {error}")
        else:
            with _writing(target):
                part.replace(target)
            return
    raise VitrineError(
        f"cannot download {file.name} of '{info.name}' ({'; '.join(problems)}): "
        f"try again later to go on, place the file at {target}, or the tree as "
        f"{folder}/{info.layout}"
    )


def _download(url: str, file: RemoteFile, part: Path) -> None:
    """Complete `part` from one mirror; start over once if what was there before spoils it."""
    resumed = _size(part) > 0
    while _size(part) < file.size:
        before = _size(part)
        try:
            _append(url, part, file)
            problem = f"the connection ended after {_size(part)} of {file.size} bytes"
        except (OSError, HTTPException) as error:
            problem = str(error) or type(error).__name__
        if _size(part) <= before:
            raise _MirrorFailed(problem)
    if problem := _wrong(part, file):
        part.unlink()
        if not resumed:
            raise _MirrorFailed(problem)
        _download(url, file, part)


def _append(url: str, part: Path, file: RemoteFile) -> None:
    start = _size(part)
    headers = {"User-Agent": "vitrine", **({"Range": f"bytes={start}-"} if start else {})}
    with urlopen(Request(url, headers=headers), timeout=TIMEOUT) as response:
        goes_on = response.status == 206  # 200: the server starts from the first byte
        with (
            _opened(part, "ab" if goes_on else "wb") as output,
            tqdm(
                desc=file.name,
                total=file.size,
                initial=start if goes_on else 0,
                unit="B",
                unit_scale=True,
                disable=None,  # off when not on a terminal
            ) as progress,
        ):
            while output.tell() <= file.size and (chunk := response.read(CHUNK)):
                with _writing(part):
                    output.write(chunk)
                    output.flush()
                progress.update(len(chunk))


def _wrong(path: Path, file: RemoteFile) -> str:
    """Say what is wrong with a file's bytes, or nothing."""
    if _size(path) != file.size:
        return f"it has {_size(path)} bytes instead of {file.size}"
    algorithm, expected = file.checksum
    with path.open("rb") as opened:
        found = hashlib.file_digest(opened, algorithm).hexdigest()
    return "" if found == expected else f"its {algorithm} is {found} instead of {expected}"


def _unpack(archive: Path) -> None:
    """Unpack an archive beside itself; files that are no archives stay as they are."""
    with _replacing(archive.parent) as temporary:
        try:
            if archive.suffix == ".zip":
                _unzip(archive, temporary)
            elif archive.suffix in (".tgz", ".gz", ".tar"):
                with tarfile.open(archive) as tar:
                    tar.extractall(temporary, filter="data")
        except DAMAGED as error:
            raise VitrineError(
                f"cannot unpack {archive} ({error}); delete it and fetch it again"
            ) from error


@contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    """Give an empty folder, whose content then takes the place of what has its names."""
    for leftover in folder.glob(".unpacking-*"):
        shutil.rmtree(leftover)
    with (
        _writing(folder),
        tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder) as temporary,
    ):
        yield Path(temporary)
        for item in Path(temporary).iterdir():
            target = folder / item.name
            if target.is_dir():
                shutil.rmtree(target)
            item.replace(target)


def _unzip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        for name in opened.namelist():
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise zipfile.BadZipFile(f"it would write outside of its folder: {name}")
        opened.extractall(folder)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@contextmanager
def _opened(path: Path, mode: str) -> Iterator:
    with _writing(path):
        file = path.open(mode)
    try:
        yield file
    finally:
        with suppress(OSError):  # told by the write that failed
            file.close()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Tell a failing disk from a failing network."""
    try:
        yield
    except OSError as error:
        raise VitrineError(
            f"cannot write {path} ({error.strerror or error}); "
            "make room there or choose another data root"
        ) from error


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes from fetching into the same folder; ends with the process."""
    with _writing(folder):
        lock = (folder / ".fetching").open("w")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise VitrineError(
                f"another process is fetching into {folder}; wait until it has finished"
            ) from None
        yield
