"""Write files atomically (a reader finds the whole file or none), lock them, and digest them."""

# decides no number

from __future__ import annotations

import errno
import fcntl
import hashlib
import multiprocessing.util
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from vitrail.errors import VitrailError


@contextmanager
def atomic_path(path: Path, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path, which is renamed to `path` at the end, or deleted after an error.

    The folder of `path` is created if it does not exist. If `durable`, the content is written to
    the disk (fsync) before the rename, and the folder's entries after it.

    Raises:
        VitrailError: the file cannot be written (no permission, no space left).
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        if durable:
            _sync(temporary)
        temporary.replace(path)
        if durable:
            _sync(path.parent)
    except OSError as error:
        raise VitrailError(
            f"cannot write {path}: {error.strerror or error}; make room or choose another folder"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _sync(path: Path) -> None:
    """Write a file, or a folder's entries, to the disk, so that a crash loses no rename.

    Some file systems (SMB, 9p, FUSE) cannot do this for a folder; their error EINVAL is ignored.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


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


_held: set[TextIO] = set()  # the files of this process's locks


class Locked(Exception):
    """Another process holds the lock."""


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Hold the kernel's lock on a file while the block runs, at most as long as the process lives.

    The file is created if it does not exist, and is not deleted: its deletion could release a lock
    that another process has just acquired.

    Raises:
        Locked: another process holds the lock.
        VitrailError: the folder cannot be written to, or its file system has no such locks.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w", encoding="utf-8")
    except OSError as error:
        raise VitrailError(
            f"cannot write to {path.parent} ({error.strerror or error}): correct its permissions "
            "or choose another folder"
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Locked from None
        except OSError as error:  # ENOLCK, EOPNOTSUPP, ENOSYS: some network file systems
            raise VitrailError(
                f"cannot lock {path} ({error.strerror or error}), which keeps two processes out of "
                f"{path.parent}: mount that file system with locks (flock) or choose another folder"
            ) from None
        _held.add(file)
        try:
            yield
        finally:
            _held.discard(file)


def _let_go() -> None:
    """Close the parent's locks in a forked child, which must not hold them when the parent ends."""
    for file in _held:
        file.close()
    _held.clear()


os.register_at_fork(after_in_child=_let_go)


def folder_of_sockets() -> str:
    """Return TMPDIR, or /tmp if TMPDIR is longer than 60 characters.

    The path of a Unix socket has at most 104 characters on macOS and 108 on Linux, and up to 32 of
    them follow this folder.
    """
    folder = tempfile.gettempdir()
    return folder if len(os.fsencode(folder)) <= 60 else "/tmp"


def shorten_socket_paths() -> None:
    """Make `multiprocessing` use `folder_of_sockets`, in this process and its children.

    Its fork server and the workers of data loaders have their sockets there. With a long TMPDIR
    they would fail with "AF_UNIX path too long". Other temporary files stay in TMPDIR.
    """
    before = tempfile.gettempdir()
    if folder_of_sockets() == before:
        return
    try:
        tempfile.tempdir = folder_of_sockets()
        multiprocessing.util.get_temp_dir()  # creates the folder once; later calls return the same
    finally:
        tempfile.tempdir = before
