"""Files that are either whole or not there, whatever happens while they are written."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vitrine.errors import VitrineError


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`, which is renamed to `path` at the end.

    The folder is made if need be, the content is on the disk before the rename, and nothing is
    left behind when the writing fails.

    Raises:
        VitrineError: the file cannot be written (no permission, no space left).
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise VitrineError(
            f"cannot write {path}: {error.strerror or error}; make room or choose another folder"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_atomically(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sha256(path: Path) -> str:
    """Return the digest of a file's bytes, in hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def clear_temporaries(folder: Path) -> None:
    """Delete the files that a killed process left half written in `folder`."""
    for leftover in folder.glob(".*.tmp"):
        leftover.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Bring a folder's entries to the disk: a rename is only there for good after this."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
