"""What a sweep has done so far, and the file from which a later call goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitrail.errors import VitrailError
from vitrail.measures.kept import Rows


class Progress:
    """Labels and logits of the samples done so far, also in a file of `Rows`.

    A row has a sample's label, and its logits as they are and averaged over each half of the
    permutations.
    """

    def __init__(self, path: Path | None, identity: dict[str, Any]):
        self.path, self.file = path, Rows(path, identity)
        self.labels: list[Tensor] = []  # (B,)
        self.logits: list[Tensor] = []  # (B, 1 + halves, classes) float64
        if begun := self.file.read():
            self.labels, self.logits = [begun[0]], [begun[1]]
            if not begun[1].isfinite().all():
                raise self.file.damaged

    def __len__(self) -> int:
        return sum(map(len, self.labels))

    def add(self, labels: Tensor, logits: Tensor) -> None:
        """Append a batch: ``(B,)`` labels and ``(B, 1 + halves, classes)`` logits."""
        self.labels.append(labels)
        self.logits.append(logits)
        self.file.append(labels, logits)

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
        self.labels, self.logits = [torch.cat(self.labels)], [torch.cat(self.logits)]
        return self.labels[0].long(), self.logits[0].unbind(dim=1)
