"""The datasets behind published results, described in Croissant 1.0 (https://mlcommons.org/croissant).

Each dataset has one file, ``datasets/<name>.json``: where its files come from and what they hash
to, its licence, its splits, and for a stand-in the function that composes it.
"""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replication.plan.nodes import MeasurementNode, TrainingNode

if TYPE_CHECKING:
    from replication.ledger import Record
    from replication.plan.datasets import DatasetInfo, RemoteFile

FOLDER = "datasets"
CROISSANT = "http://mlcommons.org/croissant/1.0"
TYPED = ("dataType",)
JSON = ("data", "examples")
TERMS = (
    *("citeAs", "column", "extract", "field", "fileProperty", "fileObject", "fileSet", "format"),
    *("includes", "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet"),
    *("references", "regex", "repeated", "replace", "separator", "source", "subField", "transform"),
)
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    **{name: f"cr:{name}" for name in TERMS},
    **{name: {"@id": f"cr:{name}", "@type": "@vocab"} for name in TYPED},
    **{name: {"@id": f"cr:{name}", "@type": "@json"} for name in JSON},
}
# SPDX names, where the registry's words are one licence.
LICENCES = {
    "CC BY 4.0": "https://creativecommons.org/licenses/by/4.0/",
    "MIT": "https://opensource.org/license/mit",
}


def croissant_of(info: DatasetInfo) -> dict[str, Any]:
    """Describe a dataset of the registry."""
    made = "" if info.files else f" Read and composed by {info.prepare or info.loader}."
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CROISSANT,
        "name": info.name,
        "alternateName": info.called,
        "description": f"{info.title}. {info.classes} classes. Split: {info.split}.{made}",
        "version": f"{info.version}.0.0",
        "license": LICENCES.get(info.licence, info.licence),
        "url": info.homepage,
        "distribution": [_file_object(file) for file in info.files],
        "recordSet": [_splits(info)],
    }


def croissants_of(records: Iterable[Record]) -> dict[str, bytes]:
    """The description of every dataset that some records rest on, by its path."""
    read: dict[str, DatasetInfo] = {}
    for record in records:
        if isinstance(record.node, TrainingNode):
            read[record.node.dataset.name] = record.node.dataset
        elif isinstance(record.node, MeasurementNode):
            read |= {info.name: info for info in record.node.reads}
    return {
        f"{FOLDER}/{name}.json": (json.dumps(croissant_of(info), indent=1) + "\n").encode()
        for name, info in sorted(read.items())
    }


def _file_object(file: RemoteFile) -> dict[str, Any]:
    algorithm, digest = file.checksum
    kind, packed = mimetypes.guess_type(Path(file.name).name)
    return {
        "@type": "cr:FileObject",
        "@id": file.name,
        "name": file.name,
        "contentUrl": file.url[0],
        "contentSize": f"{file.size} B",
        "encodingFormat": f"application/{packed}" if packed else kind or "application/octet-stream",
        algorithm: digest,
    }


def _splits(info: DatasetInfo) -> dict[str, Any]:
    """How many images each split has, as records."""
    kinds = {"splits/name": "sc:Text", "splits/images": "sc:Integer"}
    counts: Mapping[str, int] = {"train": info.train_images, "val": info.val_images}
    return {
        "@type": "cr:RecordSet",
        "@id": "splits",
        "name": "splits",
        "description": "the splits, and how many images each has",
        "key": {"@id": "splits/name"},
        "field": [
            {"@type": "cr:Field", "@id": name, "name": name, "dataType": kind}
            for name, kind in kinds.items()
        ],
        "data": [
            {"splits/name": split, "splits/images": images} for split, images in counts.items()
        ],
    }
