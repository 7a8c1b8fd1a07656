"""Save rows of results to a file, so that a long measure that was interrupted can resume."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitrail.errors import VitrailError

PLACE = 8  # bytes of the index with which a row begins


class ResumeFile:
    """Rows of several columns, and the file that each batch of them is appended to.

    The file begins with a line of JSON: the `identity` of the rows, and dtypes and shapes of their
    columns. Each row begins with its index. A row that a killed process has not completed is cut
    off. If `path` is None, nothing is saved.
    """

    def __init__(self, path: Path | None, identity: dict[str, Any]):
        self.path, self.identity = path, identity
        self._count = 0
        if path is not None:
            with self._writable():
                path.open("ab").close()  # fails now, not after the first batch

    def append(self, *columns: Tensor) -> None:
        """Append a batch of B rows: columns ``(B, ...)``, of the same dtypes and shapes each time.

        Raises:
            VitrailError: the file cannot be written.
        """
        if self.path is None:
            return
        places = torch.arange(self._count, self._count + len(columns[0]))
        batch = torch.cat([as_bytes(column) for column in (places, *columns)], dim=1)
        shapes = [[str(column.dtype)[6:], list(column.shape[1:])] for column in columns]
        with self._writable(), self.path.open("ab") as file:
            header = json.dumps(self.identity | {"columns": shapes}) + "\n"
            begun = b"" if file.tell() else header.encode()
            file.write(begun + batch.numpy().tobytes())
        self._count += len(places)

    def read(self, batch: int = 1, total: int | None = None) -> list[Tensor]:
        """Return the columns of the saved rows, an empty list if there are no rows.

        Unless there are `total` rows, those after the last complete `batch` are deleted: the rest
        is then computed in the same batches, and to the same bits, as without an interruption.

        Raises:
            VitrailError: the file has another identity, or is damaged.
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
        """The error to raise if the file's content is invalid."""
        return VitrailError(
            f"{self.path} is damaged or was not written by this measure: delete it to start again"
        )

    def _header(self) -> tuple[bytes, list[tuple[torch.dtype, list[int]]]]:
        """Return the file's first line, and dtypes and shapes of columns; none if it is empty."""
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


def as_bytes(column: Tensor) -> Tensor:
    """Return the bytes of each row of ``(B, ...)``: ``(B, W)`` uint8 on the CPU."""
    return column.cpu().reshape(len(column), -1).contiguous().view(torch.uint8)


def _of_bytes(part: Tensor, dtype: torch.dtype, shape: list[int]) -> Tensor:
    """Return rows of bytes ``(B, W)`` uint8 as a column ``(B, *shape)`` of `dtype`."""
    return part.contiguous().view(dtype).view(len(part), *shape)
