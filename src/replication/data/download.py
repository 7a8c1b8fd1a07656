"""One file from its mirrors: resumed where it stopped, retried where that helps, checked by hash.

A file is written as ``name.part``, hashed, and only then given its name, so whatever has its right
name is whole. Faults that pass (an overloaded server, a timeout) are waited out, longer each time,
after every other mirror has been tried; others (no such file, wrong bytes) rule a mirror out.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from tqdm import tqdm

from vitrail.errors import VitrailError, os_errors
from vitrail.files import Locked, lock

if TYPE_CHECKING:
    from replication.plan.datasets import RemoteFile
    from replication.plan.weights import PublishedWeights

    File = RemoteFile | PublishedWeights

TIMEOUT = 30.0  # seconds without a byte
WAITS = (2.0, 4.0, 8.0, 16.0, 32.0)  # seconds before each further round of the mirrors
PASSING = {408, 425, 429, 500, 502, 503, 504}  # HTTP states that a later request may not meet
CHUNK = 1 << 20


def download(file: File, target: Path) -> None:
    """Leave the file at `target`, whole and with the right hash; if it is there, only check it.

    Raises VitrailError if what is there is another file, no mirror serves the right one, or the
    disk is full or not writable.
    """
    if target.exists():
        if problem := wrong(target, file):
            raise VitrailError(f"{target} is damaged or another file ({problem}); delete it")
        return
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    mirrors, problems = list(file.url), dict[str, str]()
    for wait in (0.0, *WAITS):
        if problems:
            told = "; ".join(problems[url] for url in mirrors)
            print(f"{file.name}: {told}; trying again in {wait:g} s", file=sys.stderr)
            time.sleep(wait)
        for url in list(mirrors):
            problems[url], passing = _complete(url, file, part)
            if not problems[url]:
                with writing(target):
                    part.replace(target)
                return
            if not passing:
                mirrors.remove(url)
        if not mirrors:
            break
    reasons = "; ".join(f"{url}: {problem}" for url, problem in problems.items())
    raise VitrailError(
        f"cannot download {file.name} ({reasons}): try again later to go on, or place the file "
        f"at {target}"
    )


def wrong(path: Path, file: File) -> str:
    """Say what is wrong with a file's bytes, or nothing."""
    if file.size is not None and _size(path) != file.size:
        return f"it has {_size(path)} bytes instead of {file.size}"
    if file.checksum is None:
        return ""
    algorithm, expected = file.checksum
    with path.open("rb") as opened:
        found = hashlib.file_digest(opened, algorithm).hexdigest()
    # A file's name may give the first digits only.
    return "" if found.startswith(expected) else f"its {algorithm} is {found} instead of {expected}"


def _complete(url: str, file: File, part: Path) -> tuple[str, bool]:
    """Complete `part` from one mirror; return what went wrong and whether that may pass."""
    resumed, total = _size(part) > 0, file.size
    while total is None or _size(part) < total:
        before, passing = _size(part), False
        try:
            total = _append(url, part, file)
            problem = f"the connection ended after {_size(part)} of {total} bytes"
        except (OSError, HTTPException, ValueError) as error:  # ValueError: it is no URL
            if resumed and isinstance(error, HTTPError) and error.code == 416:
                break  # the mirror has no more than this
            problem, passing = str(error) or type(error).__name__, _passes(error)
        if _size(part) < (total or sys.maxsize) and _size(part) <= before:
            return problem, passing
    problem = wrong(part, file)
    if problem:
        part.unlink()
        if resumed:  # what was there before may have spoilt it
            return _complete(url, file, part)
    return problem, False


def _passes(error: Exception) -> bool:
    if isinstance(error, HTTPError):
        return error.code in PASSING
    reason = error.reason if isinstance(error, URLError) else error
    return isinstance(reason, TimeoutError | ConnectionResetError | ConnectionAbortedError)


def _append(url: str, part: Path, file: File) -> int:
    """Append what a mirror sends; return how many bytes the whole file has."""
    start = _size(part)
    headers = {"User-Agent": "vitrail", **({"Range": f"bytes={start}-"} if start else {})}
    with urlopen(Request(url, headers=headers), timeout=TIMEOUT) as response:
        goes_on = response.status == 206  # 200: the server starts from the first byte
        start = start if goes_on else 0
        length = response.headers.get("Content-Length")
        total = file.size or (start + int(length) if length else None)
        with (
            _opened(part, "ab" if goes_on else "wb") as output,
            tqdm(  # without a terminal, `disable=None` shows nothing
                desc=file.name, total=total, initial=start, unit="B", unit_scale=True, disable=None
            ) as progress,
        ):
            while output.tell() <= (total or sys.maxsize) and (chunk := response.read(CHUNK)):
                with writing(part):
                    output.write(chunk)
                    output.flush()
                progress.update(len(chunk))
    return _size(part) if total is None else total


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@contextmanager
def _opened(path: Path, mode: str) -> Iterator:
    with writing(path):
        file = path.open(mode)
    try:
        yield file
    finally:
        with suppress(OSError):  # told by the write that failed
            file.close()


def writing(path: Path) -> AbstractContextManager[None]:
    """Tell a failing disk from a failing network: an OSError of the block is a VitrailError."""
    return os_errors(f"cannot write {path}", "make room there or choose another data root")


@contextmanager
def alone(file: Path, what: str) -> Iterator[None]:
    """Lock `file` while the block fetches `what`, until it or the process ends.

    Raises VitrailError if another process holds the lock, or its file system has no locks.
    """
    try:
        with lock(file):
            yield
    except Locked:
        raise VitrailError(
            f"another process is fetching {what}; wait until it has finished"
        ) from None
