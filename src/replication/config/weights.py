"""The registry of published weights, ``configs/weights.yaml``, as typed objects.

Runs read the weights from one safetensors file: see `replication.datasets.published_weights`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field, PositiveInt
from pydantic.json_schema import SkipJsonSchema

from replication.config.datasets import Hex64, Name, Url
from replication.config.schema import Strict, load_entries
from vitrail.errors import VitrailError, did_you_mean

REGISTRY = Path("configs") / "weights.yaml"


class OnnxGraph(Strict):
    """A model in ONNX's format: one file of a zip archive such as a wheel.

    An exporter may rename tensors, so `tensors` maps each tensor of the model to its names in ONNX.
    Several names are parts of one tensor of the model, to be joined along the second axis.
    """

    file: str = Field(description="the path within the archive")
    tensors: dict[str, tuple[str, ...]] = Field(
        min_length=1, description="the model's name of each tensor that is kept -> those of ONNX"
    )


class PublishedWeights(Strict):
    """Weights that are published for download."""

    name: SkipJsonSchema[Name]  # the entry's key
    url: list[Url] = Field(min_length=1, description="mirrors of the same bytes, best first")
    size: PositiveInt | None = Field(None, description="bytes; null where it is not known")
    sha256: str | None = Hex64
    licence: str
    graph: OnnxGraph | None = Field(None, description="where the weights are those of a graph")

    @property
    def checksum(self) -> tuple[str, str] | None:
        """Return the algorithm and the expected hex digest; None if neither is known.

        The digest may be only the first digits: as in torch.hub, digits after a hyphen at the end
        of the file's name are the beginning of its SHA-256.
        """
        if self.sha256:
            return "sha256", self.sha256
        digits = re.search(r"-([0-9a-f]{8,})\.\w+$", self.url[0])
        return ("sha256", digits[1]) if digits else None

    @property
    def pinned(self) -> bool:
        """Tell whether the whole digest is known."""
        return self.sha256 is not None

    @property
    def suffix(self) -> str:
        """Return the file's suffix: ``.safetensors``, ``.whl``, or ``.pth`` for a pickle."""
        return Path(self.url[0]).suffix


def load_weights_registry(path: Path = REGISTRY) -> dict[str, PublishedWeights]:
    """Read the registry; errors as `load_entries`."""
    return load_entries(PublishedWeights, path, "weights")


def find_weights(
    name: str, registry: Mapping[str, PublishedWeights], path: Path = REGISTRY
) -> PublishedWeights:
    """Look up published weights by name or URL; raises VitrailError if the registry has none."""
    for weights in registry.values():
        if name == weights.name or name in weights.url:
            return weights
    raise VitrailError(
        f"{path} has no weights '{name}' (add their url, sha256 and licence there)"
        f"{did_you_mean(name, registry)}"
    )
