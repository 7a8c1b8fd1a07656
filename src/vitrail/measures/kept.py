"""Rows of results in files, from which a measure of hours that was killed goes on.

A probe keeps its rows in the folder of the seed that it judges (`kept_rows`). The name of a file
has the digest of all that decides its rows, so that other code, arguments, images or weights never
find it. `keeping` allows this; without it nothing is kept and nothing is read.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from vitrail.errors import VitrailError
from vitrail.files import Locked, lock

if TYPE_CHECKING:
    from vitrail.measures.context import Trained

PLACE = 8  # bytes of the place that a row begins with

_under: ContextVar[str | None] = ContextVar("under", default=None)


class Rows:
    """Rows of several columns, and the file that each batch of them is appended to.

    The file begins with a line of JSON: what the rows are of, and dtypes and shapes of their
    columns. Each row follows with its place in the order. A row that a killed process left half
    written is cut off. Without a path nothing is kept.
    """

    def __init__(self, path: Path | None, identity: dict[str, Any]):
        self.path, self.identity = path, identity
        self._count = 0
        if path is not None:
            with self._writable():
                path.open("ab").close()  # refuse one that cannot be written before any pass

    def append(self, *columns: Tensor) -> None:
        """Append a batch of B rows: columns ``(B, ...)``, of the same dtypes and shapes each time.

        Raises:
            VitrailError: the file cannot be written.
        """
        if self.path is None:
            return
        places = torch.arange(self._count, self._count + len(columns[0]))
        batch = torch.cat([_as_bytes(column) for column in (places, *columns)], dim=1)
        shapes = [[str(column.dtype)[6:], list(column.shape[1:])] for column in columns]
        with self._writable(), self.path.open("ab") as file:
            header = json.dumps(self.identity | {"columns": shapes}) + "\n"
            begun = b"" if file.tell() else header.encode()
            file.write(begun + batch.numpy().tobytes())
        self._count += len(places)

    def read(self, batch: int = 1, total: int | None = None) -> list[Tensor]:
        """Return the columns of the rows that are there, none if there are no rows.

        Unless they are `total` rows, those behind the last whole `batch` are cut off: the rest then
        is computed in the same batches as without a stop, to the same bits.

        Raises:
            VitrailError: the file is of other rows, or damaged.
        """
        header, columns = self._header()
        if self.path is None or not columns:
            return []
        widths = [PLACE, *(dtype.itemsize * math.prod(shape) for dtype, shape in columns)]
        body = np.fromfile(self.path, np.uint8, offset=len(header))
        whole = len(body) // sum(widths)
        if whole != total:
            whole -= whole % batch
        os.truncate(self.path, len(header) + whole * sum(widths))
        rows = torch.from_numpy(body[: whole * sum(widths)]).view(whole, -1)
        places, *parts = rows.split(widths, dim=1)
        if not torch.equal(_of_bytes(places, torch.int64, []), torch.arange(whole)):
            raise self.damaged
        self._count = whole
        found = zip(parts, columns, strict=True)
        return [_of_bytes(part, *column) for part, column in found] if whole else []

    @property
    def damaged(self) -> VitrailError:
        """What to raise of a file whose content cannot be."""
        return VitrailError(
            f"{self.path} is damaged or was not written by this measure: delete it to start again"
        )

    def _header(self) -> tuple[bytes, list[tuple[torch.dtype, list[int]]]]:
        """Return the file's first line and its columns, none of a file that is empty."""
        if self.path is None:
            return b"", []
        with self.path.open("rb") as file:
            header = file.readline()
        if not header:
            return b"", []
        try:
            identity = json.loads(header)
            columns = [(getattr(torch, name), shape) for name, shape in identity.pop("columns")]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise self.damaged from None
        if identity != self.identity:
            keys = [
                key
                for key in identity | self.identity
                if identity.get(key) != self.identity.get(key)
            ]
            there, wanted = (
                {key: values.get(key) for key in keys} for values in (identity, self.identity)
            )
            raise VitrailError(
                f"{self.path} holds rows for {there}, not for {wanted}: delete it to start again"
            )
        return header, columns

    @contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise VitrailError(
                f"cannot write {self.path} ({error.strerror or error}): free some disk space, or "
                "correct the folder's permissions"
            ) from None


@contextmanager
def keeping(under: str) -> Iterator[None]:
    """Let measures keep rows in the block, by the digest of what else decides these."""
    token = _under.set(under)
    try:
        yield
    finally:
        _under.reset(token)


@contextmanager
def kept_rows(trained: Trained[Any], name: str, **decided: Any) -> Iterator[Rows]:
    """Give the rows that a measure keeps of a trained model.

    What the arguments do not say decides them too: the model's weights, the seed, and what
    `keeping` was told. While another process has them, they are computed here and not kept.
    """
    path = kept_path(trained, name, **decided)
    if path is None:
        yield Rows(None, {})
        return
    try:
        with lock(path.with_suffix(".lock")):
            yield Rows(path, {"of": name, **decided})
    except Locked:
        yield Rows(None, {})


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
        found.update(_as_bytes(weights.detach().reshape(1, -1)).numpy().tobytes())
    return found.hexdigest()[:16]


def _as_bytes(column: Tensor) -> Tensor:
    """``(B, ...)`` as its bytes, ``(B, W)`` uint8 on the CPU."""
    return column.cpu().reshape(len(column), -1).contiguous().view(torch.uint8)


def _of_bytes(part: Tensor, dtype: torch.dtype, shape: list[int]) -> Tensor:
    """``(B, W)`` uint8 as ``(B, *shape)``."""
    return part.contiguous().view(dtype).view(len(part), *shape)
