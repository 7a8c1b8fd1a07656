"""Save rows of results to files, so that a long measure that was interrupted can resume.

A measure saves its rows in the folder of the seed that it evaluates (`kept_rows`). The file's name
contains a digest of everything on which the rows depend: code, arguments, images, weights. So rows
are read again only if all of these are the same. Files are used only within `keeping`; outside of
it nothing is saved and nothing is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch
from torch import nn

from replication.context import Trained
from vitrail.files import Locked, lock
from vitrail.measures.resume import ResumeFile, as_bytes

_under: ContextVar[str | None] = ContextVar("under", default=None)


@contextmanager
def keeping(under: str) -> Iterator[None]:
    """Let measures save rows within the `with` block.

    `under` is a digest of what the rows depend on besides the arguments of `kept_rows`.
    """
    token = _under.set(under)
    try:
        yield
    finally:
        _under.reset(token)


@contextmanager
def kept_rows(trained: Trained[Any], name: str, **decided: Any) -> Iterator[ResumeFile]:
    """Yield the file of rows that a measure saves for a trained model.

    The file is identified by `name`, the arguments `decided`, the model's weights, the seed, the
    device, and the digest given to `keeping`. While another process holds the file, and outside of
    `keeping`, the yielded `ResumeFile` saves nothing.
    """
    path = kept_path(trained, name, **decided)
    if path is None:
        yield ResumeFile(None, {})
        return
    try:
        with lock(path.with_suffix(".lock")):
            yield ResumeFile(path, {"of": name, **decided})
    except Locked:
        yield ResumeFile(None, {})


def kept_path(trained: Trained[Any], name: str, **decided: Any) -> Path | None:
    """Return the path of the file that `kept_rows` uses, or None outside of `keeping`."""
    if (under := _under.get()) is None:
        return None
    facts = json.dumps([under, trained.seed, trained.device, torch.__version__, decided])
    digest = hashlib.sha256(facts.encode()).hexdigest()[:16]
    return _folder(trained) / f"{name}-{_digest_of(trained.model)}-{digest}.kept"


def forget(trained: Trained[Any], name: str) -> None:
    """Delete all files of rows of that `name` for the model with its present weights."""
    if _under.get() is not None:
        for file in _folder(trained).glob(f"{name}-{_digest_of(trained.model)}-*.kept"):
            file.unlink(missing_ok=True)


def _folder(trained: Trained[Any]) -> Path:
    return trained.folder / "kept"


def _digest_of(model: nn.Module) -> str:
    """Return 16 hex digits of the SHA-256 of a model's weights."""
    found = hashlib.sha256()
    for name, weights in model.state_dict().items():
        found.update(f"{name} {weights.dtype} {list(weights.shape)}".encode())
        found.update(as_bytes(weights.detach().reshape(1, -1)).numpy().tobytes())
    return found.hexdigest()[:16]
