"""Rows of results in files, from which a measure of hours that was killed goes on.

A probe keeps its rows in the folder of the seed that it judges (`kept_rows`). The name of a file
has the digest of all that decides its rows, so that other code, arguments, images or weights never
find it. `keeping` allows this; without it nothing is kept and nothing is read.
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
    """Let measures keep rows in the block, by the digest of what else decides these."""
    token = _under.set(under)
    try:
        yield
    finally:
        _under.reset(token)


@contextmanager
def kept_rows(trained: Trained[Any], name: str, **decided: Any) -> Iterator[ResumeFile]:
    """Give the rows that a measure keeps of a trained model.

    What the arguments do not say decides them too: the model's weights, the seed, and what
    `keeping` was told. While another process has them, they are computed here and not kept.
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
    """Where a measure may keep what the arguments decide, None outside of `keeping`."""
    if (under := _under.get()) is None:
        return None
    facts = json.dumps([under, trained.seed, trained.device, torch.__version__, decided])
    digest = hashlib.sha256(facts.encode()).hexdigest()[:16]
    return _folder(trained) / f"{name}-{_digest_of(trained.model)}-{digest}.kept"


def forget(trained: Trained[Any], name: str) -> None:
    """Delete what is kept by that name of the model as it is."""
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
