"""What a sweep has done so far, and the file from which a later call goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitrail.errors import VitrailError


class Progress:
    """Labels and logits of the samples done so far, and the file that each batch is appended to.

    The file begins with a line of JSON: what the sweep is of, and its classes. A row of float64
    follows for each sample: its place in the order, its label, and its logits as they are and
    averaged over each half of the permutations. A row that a killed process left half written is
    cut off.
    """

    def __init__(self, path: Path | None, identity: dict[str, Any]):
        self.path, self.identity = path, identity
        self.rows: list[Tensor] = []  # (B, 2), place and label, and the logits behind them
        self.parts = 1 + min(2, identity["permutations"])
        if path is not None:
            with self._writable():
                path.open("ab").close()  # refuse one that cannot be written before any pass
                self._load(path)

    def __len__(self) -> int:
        return sum(map(len, self.rows))

    def add(self, labels: Tensor, logits: Tensor) -> None:
        """Append a batch: ``(B,)`` labels and ``(B, 1 + halves, classes)`` logits."""
        places = torch.arange(len(self), len(self) + len(labels))
        leading = torch.stack([places, labels], dim=1).double()
        self.rows.append(torch.cat([leading, logits.flatten(1)], dim=1))
        if self.path is not None:
            with self._writable(), self.path.open("ab") as file:
                header = json.dumps(self.identity | {"classes": logits.shape[2]}) + "\n"
                begun = b"" if file.tell() else header.encode()
                file.write(begun + self.rows[-1].numpy().tobytes())

    def require_same(self, ends: Tensor) -> None:
        """Refuse the file if its first and last sample have other logits: ``(2, classes)``."""
        _, (clean, *_) = self.joined()
        kept = clean[[0, -1]]
        if kept.shape != ends.shape or not torch.allclose(kept, ends, rtol=1e-3, atol=1e-3):
            raise VitrailError(
                f"{self.path} was begun with another model or other images: delete it to begin anew"
            )

    def joined(self) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Labels ``(n,)`` and logits ``(n, classes)``: as they are, averaged over each half."""
        self.rows = [torch.cat(self.rows)]
        rows = self.rows[0]
        return rows[:, 1].long(), rows[:, 2:].unflatten(1, (self.parts, -1)).unbind(dim=1)

    def _load(self, path: Path) -> None:
        damaged = VitrailError(f"{path} is damaged or no sweep's: delete it to begin anew")
        header, _, body = path.read_bytes().partition(b"\n")
        if not header:
            return
        try:
            identity = json.loads(header)
            columns = 2 + self.parts * identity.pop("classes")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise damaged from None
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
                f"{path} is of a sweep with {there}, not {wanted}: delete it to begin anew"
            )
        whole = len(body) // (8 * columns)
        os.truncate(path, len(header) + 1 + whole * 8 * columns)
        rows = torch.from_numpy(np.frombuffer(body, count=whole * columns).copy())
        rows = rows.view(whole, columns)
        if not torch.equal(rows[:, 0], torch.arange(whole).double()) or not rows.isfinite().all():
            raise damaged
        self.rows = [rows] if whole else []

    @contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise VitrailError(
                f"cannot write {self.path} ({error.strerror or error}): make room or name another"
            ) from None
