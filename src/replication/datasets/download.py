"""Download one file from its mirrors: resume, retry after temporary errors, check the hash.

A file is written as ``name.part``, hashed, and only then renamed, so a file with its final name is
complete. It is downloaded by ``curl``, which resumes, follows redirects, knows proxies and ends a
transfer that stalls. macOS, clusters and our container have curl, and no scale on a laptop
downloads anything. Of the libraries, pooch does not resume, and `http_get` of huggingface_hub
decodes what a server declares as compressed, such as some archives, which changes the hash.

curl's own ``--retry`` is not used: it waits before another mirror is tried, and discards the bytes
that came before the error. After a temporary error (an overloaded server, a timeout, no connection)
all other mirrors are tried first; then the download waits, longer each time, and tries again. After
another error (no such file, wrong bytes) the mirror is not tried again.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from vitrail.errors import VitrailError, os_errors
from vitrail.files import Locked, lock

if TYPE_CHECKING:
    from replication.config.datasets import RemoteFile
    from replication.config.weights import PublishedWeights

    File = RemoteFile | PublishedWeights

TIMEOUT = 30  # seconds without a connection, or without a byte
WAITS = (2.0, 4.0, 8.0, 16.0, 32.0)  # seconds before each further round of the mirrors

# curl's exit statuses (man curl, EXIT CODES)
HTTP_ERROR, WRITE_ERROR, NO_RANGES = 22, 23, 33
PASSING = {5, 6, 7, 16, 18, 28, 35, 52, 55, 56, 92}  # temporary: no name, no connection, timeout
PASSING_HTTP = {"408", "425", "429", "500", "502", "503", "504"}
NOTHING_FOLLOWS = "416"  # the server has no more bytes than the part file

# Of a user's curlrc only network settings are used; others would change what is written.
NETWORK = re.compile(
    r"\s*(-[xUkEn46]|(--)?(proxy|preproxy|noproxy|socks[45]|ca(cert|path|-native)|insecure|cert|key\b"
    r"|netrc|ipv[46]|interface|dns-|doh-|resolve|connect-to|limit-rate|http[123]|tls|ssl))"
)


def download(file: File, target: Path) -> None:
    """Download a file to `target` and check its hash; if `target` exists, only check it.

    Raises VitrailError if an existing file has the wrong bytes, no mirror serves the right file,
    the disk is full or not writable, or curl is not installed.
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
    """Return how the size or hash at `path` differs from those of `file`, or an empty string."""
    if file.size is not None and _size(path) != file.size:
        return f"it has {_size(path)} bytes instead of {file.size}"
    if file.checksum is None:
        return ""
    algorithm, expected = file.checksum
    with path.open("rb") as opened:
        found = hashlib.file_digest(opened, algorithm).hexdigest()
    # The expected hash may be only the first digits, as in some files' names.
    return "" if found.startswith(expected) else f"its {algorithm} is {found} instead of {expected}"


def _complete(url: str, file: File, part: Path) -> tuple[str, bool]:
    """Complete `part` from one mirror; return the error, or "", and whether it is temporary."""
    resumed = _size(part) > 0
    while file.size is None or _size(part) < file.size:
        before = _size(part)
        problem, passing = _append(url, file, part)
        if not problem:
            break
        if _size(part) <= before:
            return problem, passing
    problem = wrong(part, file)
    if problem and _size(part) >= (file.size or 0):
        part.unlink(missing_ok=True)
        if resumed:  # what was there before may have spoilt it
            return _complete(url, file, part)
    return problem, False


def _append(url: str, file: File, part: Path) -> tuple[str, bool]:
    """Append what a mirror sends after the bytes of `part`; return as `_complete`."""
    command = ["curl", "--disable", "--config", "-"]
    command += ["--fail", "--location", "--globoff", "--user-agent", "vitrail"]
    command += ["--connect-timeout", f"{TIMEOUT}", "--speed-time", f"{TIMEOUT}"]
    command += ["--progress-bar" if sys.stderr.isatty() else "--silent"]
    command += ["--max-filesize", f"{file.size}"] if file.size else []
    command += ["--continue-at", "-", "--output", str(part)]
    command += ["--write-out", "%{http_code} %{errormsg}", "--url", url]
    try:
        # Signals as Python has them: a file that outgrows the user's limit is a failing write.
        done = subprocess.run(
            command,
            input=_settings(),
            stdout=subprocess.PIPE,
            encoding="utf-8",
            errors="surrogateescape",
            restore_signals=False,
        )
    except FileNotFoundError:
        raise VitrailError(
            f"cannot download {file.name}, as curl is not installed: install it, or place the file "
            f"at {part.with_suffix('')}"
        ) from None
    status, (http, _, reason) = done.returncode, done.stdout.partition(" ")
    if status == NO_RANGES and _size(part):  # it sends the whole file or nothing
        part.unlink()
        return _append(url, file, part)
    if status == HTTP_ERROR and http == NOTHING_FOLLOWS and _size(part):
        return "", False
    reason = reason or f"curl ended with status {status}, see man curl"  # curl before 7.75
    if status == WRITE_ERROR:
        with writing(part):
            raise OSError(reason)
    passing = http in PASSING_HTTP if status == HTTP_ERROR else status in PASSING
    return (reason if status else ""), passing


def _settings() -> str:
    """Return the lines of the user's curlrc that match `NETWORK` (man curl, ``--config``)."""
    home = Path(os.path.expanduser("~"))  # which stays "~" for a user without one
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    own = [Path(os.environ["CURL_HOME"], ".curlrc")] if "CURL_HOME" in os.environ else []
    for file in (*own, folder / "curlrc", home / ".curlrc"):
        with suppress(OSError):
            lines = file.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
            return "\n".join(filter(NETWORK.match, lines))
    return ""


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def writing(path: Path) -> AbstractContextManager[None]:
    """Return a context that turns an OSError, which is one of the disk, into a VitrailError."""
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
