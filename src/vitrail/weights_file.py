"""Files of weights, read without running code.

A pickle may run any code, so no file is opened in a way that lets it: safetensors, or `torch.load`
with `weights_only`. Published weights lie beside a note of their digest, which
`replication.engine.weights` leaves when it fetches and checks them.
"""

from __future__ import annotations

import argparse
import json
import os
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

CONTAINERS = ("state_dict", "model", "teacher")  # under which checkpoints keep their weights
PAGES = (b"<!doctype", b"<html", b"<?xml")  # how a web page begins

# Whoever calls `torch.load` in our processes gets `weights_only`: mmengine asks for the opposite
# where that fails, timm's and torch.hub's downloads may, too.
os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"


def read_checkpoint(path: Path) -> Any:
    """Read what a ``.safetensors`` file or `torch.save`'s holds, on the CPU, running no code of it.

    Raises VitrailError if it is not there, damaged, not weights, or would run code.
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
            "weights from their publisher, as safetensors where there are such"
        ) from None
    except Exception as error:  # a damaged file fails in as many ways as it has bytes
        raise VitrailError(
            f"{path} is damaged ({first_line(error)}): delete it and make it again"
        ) from None


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file of weights; VitrailError as `read_checkpoint`, or without any."""
    content = read_checkpoint(path)
    for name in CONTAINERS:
        if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
            content = content[name]
    tensors = content if isinstance(content, Mapping) else {}
    tensors = {str(name): value for name, value in tensors.items() if isinstance(value, Tensor)}
    if not tensors:
        raise VitrailError(f"{path} holds no weights: get the file again from its publisher")
    return tensors


def require_as_noted(file: Path) -> dict[str, Any]:
    """Refuse published weights that are not as they were when they were fetched and checked.

    Returns the note: `sha256` of the file, `published_sha256` of what it was made from, and whether
    the registry names that (`pinned`). Raises VitrailError if the file or its note is not there or
    damaged, or the file has changed.
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
    """Where the digest of published weights is noted."""
    return file.with_suffix(".json")
