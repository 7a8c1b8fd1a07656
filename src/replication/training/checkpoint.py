"""Save and load the checkpoints of a run: the newest two, each with a seal.

A checkpoint is the file `step-00000123.pt`. Its seal is `step-00000123.json`, which holds the
recipe's hash, the seed, the digest of the datasets' entries, the SHA-256 of the file of initial
weights, and the size and SHA-256 of the checkpoint's bytes. The seal is written first. So a
checkpoint without a seal is damaged, and a seal without a checkpoint only shows that the process
was killed while it saved.
"""

# decides no number

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch

from replication.training import CHECKPOINTS_KEPT
from vitrail.errors import VitrailError, first_line
from vitrail.files import atomic_path, clear_temporaries, sha256, write_atomically


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: where they lie.
        recipe_hash: hash of the run's recipe.
        seed: seed of the run.
        data: digest of the datasets' entries (`replication.training.run_folder.data_digest`).
        start: SHA-256 of the file of weights that the run starts from; None without such a file.
    """

    def __init__(
        self, folder: Path, recipe_hash: str, seed: int, data: str, start: str | None = None
    ) -> None:
        self.folder, self._start = folder, start
        self._owner = {"recipe_hash": recipe_hash, "seed": seed, "data": data}

    def save(self, step: int, state: dict[str, Any]) -> Path:
        """Save `state` after `step` steps, delete all but the newest two checkpoints.

        Returns the checkpoint's path. Raises VitrailError if the disk is full or the folder is
        read-only; the older checkpoints are then unchanged.
        """
        path = self.folder / f"step-{step:08d}.pt"
        with atomic_path(path) as partial:
            with _Sealed(partial) as file:
                try:
                    torch.save({"step": step, **state}, file)
                except RuntimeError as error:
                    raise file.error or error from None  # torch's zip writer hides the OSError
                size, digest = file.tell(), file.sha256.hexdigest()
            seal = {**self._owner, "step": step, "bytes": size, "sha256": digest}
            seal["initial_sha256"] = self._start
            write_atomically(path.with_suffix(".json"), json.dumps(seal))
        for old in self._paths()[CHECKPOINTS_KEPT:]:
            self._delete(old)
        return path

    def latest(self) -> Path | None:
        """Return the path of the newest undamaged checkpoint, or None if the run has none yet.

        Newer checkpoints that are damaged are skipped with a warning and deleted, as are the
        temporary files of a killed process. Raises VitrailError if a checkpoint belongs to another
        recipe, seed, data or initial weights, or if all checkpoints are damaged.
        """
        clear_temporaries(self.folder)
        damaged: list[Path] = []
        for path in self._paths():
            fault = self._fault(path)
            if fault is None:
                for old in damaged:  # otherwise they would count as kept checkpoints
                    self._delete(old)
                return path
            print(f"warning: checkpoint {path} is damaged ({fault}) and left out", file=sys.stderr)
            damaged.append(path)
        if damaged:
            raise VitrailError(
                f"every checkpoint in {self.folder} is damaged: delete that folder to train from "
                "the start"
            )
        return None

    def load(self, path: Path) -> tuple[int, dict[str, Any]]:
        """Return the step and the state, on the CPU, of a checkpoint that `latest` returned."""
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        return state.pop("step"), state

    def clear(self) -> None:
        """Delete the folder of the checkpoints; call it once the final weights are on disk."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _paths(self) -> list[Path]:
        found = (path for path in self.folder.glob("step-*.pt") if path.is_file())
        return sorted(found, reverse=True)

    def _delete(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        path.with_suffix(".json").unlink(missing_ok=True)

    def _fault(self, path: Path) -> str | None:
        """Return why a checkpoint is damaged, or None if it is not.

        Raises VitrailError if it belongs to another run or started from other weights.
        """
        try:
            seal = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
            owner = {key: seal[key] for key in self._owner}
            size, digest = seal["bytes"], seal["sha256"]
        except (OSError, ValueError, KeyError, TypeError):
            return "its .json seal is missing or unreadable"
        if owner != self._owner:
            raise VitrailError(
                f"checkpoint {path} is of {_run_of(owner)}, not of {_run_of(self._owner)}: delete "
                f"{self.folder} to train from the start, or train in another folder"
            )
        started = seal.get("initial_sha256")  # absent from checkpoints of older code
        if None not in (started, self._start) and started != self._start:
            raise VitrailError(
                f"checkpoint {path} was trained from other weights than those that training starts "
                f"from now: delete {self.folder} to train from the start"
            )
        try:
            if path.stat().st_size != size:
                return f"{path.stat().st_size} bytes of {size}"
            if sha256(path) != digest:
                return "its SHA-256 differs from the one recorded"
        except OSError as error:
            return error.strerror or str(error)
        try:  # `mmap`: do not read the tensors into memory
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except Exception as error:  # torch raises many types for damaged files
            return f"torch cannot load it: {first_line(error)}"
        return None if isinstance(state, dict) and "step" in state else "it holds no state"


def _run_of(owner: Mapping[str, Any]) -> str:
    recipe, seed, data = owner["recipe_hash"], owner["seed"], owner["data"]
    return f"recipe {recipe}, seed {seed}, on datasets whose entries have the digest {data}"


class _Sealed(io.BufferedWriter):
    """A new binary file that records the SHA-256 of its bytes and the error of a failed write."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path, "w"))
        self.sha256, self.error = hashlib.sha256(), cast(OSError | None, None)

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        try:
            return super().write(data)
        except OSError as error:
            self.error = error
            raise
