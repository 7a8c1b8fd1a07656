"""Fetch published weights, or check those placed by hand (``vitrail fetch-weights``).

This is done once, on a machine with a network. The file is checked against
``configs/weights.yaml`` and saved as safetensors. A note (``<name>.json``) holds the digest,
against which the file is checked at every use.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import safetensors.torch
import torch

from replication.datasets.download import alone, download
from vitrail.errors import VitrailError, first_line
from vitrail.files import atomic_path, sha256, write_atomically
from vitrail.weights_file import note_of, read_weights, require_as_noted

if TYPE_CHECKING:
    from torch import Tensor

    from replication.config.weights import OnnxGraph, PublishedWeights


def fetch(weights: PublishedWeights, output: Path) -> None:
    """Write published weights to `output`, a safetensors file, and a note of their digest.

    The published file is not downloaded if it already lies beside `output`, under the same name
    with its own suffix (if that is safetensors: as `output` itself). Raises VitrailError if the
    weights cannot be fetched or written, or are not those of the registry.
    """
    with alone(output.with_name(f".{output.name}.fetching"), str(output)):
        published = output.with_suffix(weights.suffix)
        note = note_of(output)
        if output.exists() and note.exists():
            noted = require_as_noted(output)["published_sha256"]
            if weights.checksum and not noted.startswith(weights.checksum[1]):
                raise VitrailError(
                    f"{output} was made from a file of SHA-256 {noted}, and configs/weights.yaml "
                    f"wants {weights.checksum[1]}: delete it to fetch it again"
                )
            return
        if output.exists() and published != output:
            raise VitrailError(
                f"{output} has no note of what it was made from ({note.name}): delete it to fetch "
                f"it again, or put the published file in its place, {published.name}"
            )
        found = published.exists()
        download(weights, published)
        origin = sha256(published)
        graph = weights.graph
        tensors = tensors_of(published, graph) if graph else read_weights(published)
        if published != output:
            # Clones, because safetensors refuses tensors that share memory (tied weights, views).
            kept = {name: value.contiguous().clone() for name, value in tensors.items()}
            with atomic_path(output) as partial:
                partial.write_bytes(safetensors.torch.save(kept))
            if not found:
                published.unlink()
        noted = {"published_sha256": origin, "sha256": sha256(output), "pinned": weights.pinned}
        write_atomically(note, json.dumps(noted) + "\n")


def tensors_of(archive: Path, graph: OnnxGraph) -> dict[str, Tensor]:
    """Read tensors of an ONNX graph in a zip archive; the result has the model's names for them.

    The graph is only read, not run. Raises VitrailError if the package onnx is not installed, the
    archive is damaged, or it lacks the file or one of the tensors that `graph` names.
    """
    try:
        import onnx
    except ImportError:
        raise VitrailError(
            f"{archive} holds weights in ONNX's format, and the package onnx, which reads it, is "
            "not installed: pip install onnx"
        ) from None
    try:
        with zipfile.ZipFile(archive) as files:
            held = onnx.load_from_string(files.read(graph.file)).graph.initializer
        found = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in held}
        parts = {
            name: [torch.tensor(found[part]) for part in named]
            for name, named in graph.tensors.items()
        }
        return {name: torch.cat(of, dim=1) if of[1:] else of[0] for name, of in parts.items()}
    except Exception as error:  # a damaged file fails in as many ways as it has bytes
        raise VitrailError(
            f"cannot read the weights in {archive} ({graph.file}: {first_line(error)}): delete the "
            "file to fetch it again, or correct `graph` in configs/weights.yaml"
        ) from None
