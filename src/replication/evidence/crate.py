"""Published results as a research object: RO-Crate metadata by the Process Run Crate profile.

``ro-crate-metadata.json`` beside published results describes every file with its SHA-256, and for
each table and figure the run that made it: which software at which commit, from which records, with
which files as its result. Other archives read this format (https://www.researchobject.org/).
"""

from __future__ import annotations

import hashlib
import json
import mimetypes
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replication.plan.nodes import RenderingNode, TrainingNode

if TYPE_CHECKING:
    from replication.ledger import Record
    from replication.plan.nodes import ReportedPaper

NAME = "ro-crate-metadata.json"
CRATE = "https://w3id.org/ro/crate/1.1"
PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
LICENCE = "https://www.apache.org/licenses/LICENSE-2.0"
KINDS = {".jsonl": "application/jsonl", ".md": "text/markdown", ".tex": "application/x-tex"}


def crate_of(
    folder: Path, scale: str, papers: Iterable[ReportedPaper], records: Mapping[Path, Record]
) -> dict[str, Any]:
    """Describe a folder of published results, whose numbers rest on these records."""
    files = {
        str(path.relative_to(folder)): path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != NAME
    }
    actions = [*_actions([record for _, record in sorted(records.items())], files)]
    papers = [paper for paper in papers if paper.url]  # what is ours alone has no article
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": f"Vitrail: results at scale {scale}",
        "description": "Tables and figures of four Vision Transformer papers, rebuilt, with every "
        "measured number beside the printed one and the records that it rests on.",
        "datePublished": _moment(records.values()),
        "license": _to(LICENCE),
        "conformsTo": _to(PROFILE),
        "citation": [_to(paper.url) for paper in papers],
        "hasPart": [*map(_to, files)],
        "mentions": [_to(action["@id"]) for action in actions],
    }
    commits = sorted({commit for record in records.values() for commit in record.commits})
    return {
        "@context": f"{CRATE}/context",
        "@graph": [
            {
                "@id": NAME,
                "@type": "CreativeWork",
                "conformsTo": _to(CRATE),
                "about": _to("./"),
            },
            root,
            {
                "@id": PROFILE,
                "@type": "CreativeWork",
                "name": "Process Run Crate",
                "version": "0.5",
            },
            {"@id": LICENCE, "@type": "CreativeWork", "name": "Apache License 2.0"},
            {
                "@id": "#vitrail",
                "@type": "SoftwareApplication",
                "name": "vitrail",
                "softwareVersion": f"{version('vitrail')}, at commits {', '.join(commits)}",
            },
            *(
                {
                    "@id": paper.url,
                    "@type": "ScholarlyArticle",
                    "name": paper.title,
                    "creditText": f"{paper.authors}, {paper.venue}",
                }
                for paper in papers
            ),
            *actions,
            *map(_file, files.values(), files),
        ],
    }


def write_crate(
    folder: Path, scale: str, papers: Iterable[ReportedPaper], records: Mapping[Path, Record]
) -> None:
    """Write the metadata into the folder that it describes."""
    text = json.dumps(crate_of(folder, scale, papers, records), indent=1, ensure_ascii=False)
    (folder / NAME).write_text(text + "\n", encoding="utf-8")


def _actions(records: Iterable[Record], files: Mapping[str, Path]) -> Iterator[dict[str, Any]]:
    """The run that made each table and figure."""
    for record in records:
        node = record.node
        if not isinstance(node, RenderingNode):
            continue
        results = [f"{node.paper}/{name}" for name in record.outcome["outputs"]]
        yield {
            "@id": f"#{node.target}",
            "@type": "CreateAction",
            "name": node.command,
            "description": f"rendered by the code of commit {node.commit}",
            "instrument": _to("#vitrail"),
            "object": [_to(f"{node.paper}/nodes.jsonl")],
            "result": [_to(name) for name in results if name in files],
        }


def _file(path: Path, name: str) -> dict[str, Any]:
    """A file with its size, type and digest."""
    kind = KINDS.get(path.suffix) or mimetypes.guess_type(path.name)[0]
    content = path.read_bytes()
    return {
        "@id": name,
        "@type": "File",
        "name": name,
        "encodingFormat": kind,
        "contentSize": str(len(content)),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def _moment(records: Iterable[Record]) -> str:
    """When the last training among some records began: the same at each publication of them."""
    return max(
        (
            str(facts["started"])
            for record in records
            if isinstance(record.node, TrainingNode)
            for facts in record.outcome["facts"].values()
            if facts.get("started")
        ),
        default="1970-01-01T00:00:00+00:00",
    )


def _to(name: str) -> dict[str, str]:
    return {"@id": name}
