"""Read files of weights without running any code in them.

A pickle can run any code when it is loaded. So files are read only as safetensors, or by
`torch.load` with `weights_only`. Beside a file of published weights lies a note with its digest;
`replication.datasets.published_weights` writes the note when it downloads and checks the file.
"""

from __future__ import annotations

import argparse
import json
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from vitrail.errors import VitrailError, first_line
from vitrail.files import sha256

# The keys under which checkpoints keep their weights. The moving average comes first: timm's
# training reports the accuracy of the moving average, and timm loads it.
CONTAINERS = (
    "state_dict_ema",
    "model_ema",
    "state_dict",
    "model_state_dict",
    "model",
    "teacher",
)
PAGES = (b"<!doctype", b"<html", b"<?xml")  # how a web page begins

OWN = "if it is your own, save its weights alone: torch.save(model.state_dict(), FILE)"


def read_checkpoint(path: Path) -> Any:
    """Return what a ``.safetensors`` file or one of `torch.save` holds, on the CPU; run no code.

    Raises VitrailError if the file is missing, damaged, not weights, or would run code.
    """
    try:
        with path.open("rb") as file:
            beginning = file.read(64).lstrip().lower()
        if beginning.startswith(PAGES):
            raise VitrailError(
                f"{path} is a web page, not weights: delete it and download the file itself"
            )
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        with torch.serialization.safe_globals([argparse.Namespace]):  # as DeiT saves its options
            return torch.load(path, map_location="cpu", weights_only=True)
    except VitrailError:
        raise
    except OSError as error:
        raise VitrailError(
            f"cannot read {path} ({error.strerror or error}): correct the path or its permissions"
        ) from None
    except pickle.UnpicklingError as error:
        called = re.search(r"GLOBAL ([\w.]+)", str(error))
        reason = f"it calls {called[1]}" if called else "it is no plain pickle of tensors"
        raise VitrailError(
            f"{path} is refused, as reading it may run code or it is damaged ({reason}): get the "
            f"weights from their publisher, as safetensors where there are such, or {OWN}"
        ) from None
    except Exception as error:  # a damaged file fails in as many ways as it has bytes
        raise VitrailError(
            f"{path} is no file of weights, or is damaged ({type(error).__name__}: "
            f"{first_line(error)}): give a whole file that torch.save or safetensors has written; "
            "if this one was made or downloaded here, delete it and make it again"
        ) from None


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file of weights by name.

    Raises VitrailError as `read_checkpoint` does, or if the file has no tensors.
    """
    return find_weights(path)[0]


def find_weights(path: Path) -> tuple[dict[str, Tensor], str]:
    """Return the tensors as `read_weights`, and the keys of `CONTAINERS` under which they are.

    If a file has several sets of weights, those under the first key of `CONTAINERS` are read: the
    moving average if there is one, as timm's `load_checkpoint` does. Nested keys are joined by
    dots; the text is "" if the tensors are at the top level of the file.
    """
    content, names = read_checkpoint(path), list[str]()
    for name in CONTAINERS:
        if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
            content = content[name]
            names.append(name)
    held = content if isinstance(content, Mapping) else {}
    tensors = {str(name): value for name, value in held.items() if isinstance(value, Tensor)}
    if not tensors:
        found = ", ".join(map(str, [*held][:6])) or type(content).__name__
        raise VitrailError(
            f"{path} holds no weights ({found}): get the file again from its publisher, or {OWN}"
        )
    return tensors, ".".join(names)


def require_as_noted(file: Path) -> dict[str, Any]:
    """Check that a file of published weights has not changed since it was fetched; return its note.

    The note has `sha256` of the file, `published_sha256` of the download that it was made from, and
    `pinned`: whether the registry lists the latter. Raises VitrailError if the file is missing or
    has changed, or its note is missing or damaged.
    """
    command = f"`vitrail fetch-weights {file.stem} --output {file}`"
    if not file.exists():
        raise VitrailError(f"{file} does not exist: run {command} where there is a network")
    try:
        noted: dict[str, Any] = json.loads(note_of(file).read_text(encoding="utf-8"))
        digest, _ = noted["sha256"], noted["published_sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        raise VitrailError(
            f"{file} has no sound note of its digest, {note_of(file).name}: run {command} to "
            "check it"
        ) from None
    if sha256(file) != digest:
        raise VitrailError(
            f"{file} has changed since it was fetched (its SHA-256 is not {digest}): delete it and "
            f"run {command}"
        )
    return noted


def note_of(file: Path) -> Path:
    """Return the path of the note with the digest of published weights."""
    return file.with_suffix(".json")
