"""Results for the commands: the ledger of a scale, its claims, and the published results.

The published folder has the rendered files and, for each paper, ``nodes.jsonl.gz``: the records
from which these files were rendered. So every published table can be rendered again on a machine
where nothing was trained.
"""

from __future__ import annotations

import functools
import gzip
import json
import shlex
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import partial
from pathlib import Path

import pandas as pd

from replication.claims.comparison import Measured, as_measured
from replication.claims.judge import evaluate
from replication.plan.catalog import Catalog
from replication.plan.code_digest import training_code
from replication.plan.paper import Paper
from replication.records.nodes import AnyNode, RenderingNode
from replication.records.records import Fault, Ledger, Record, parse_record, read_sound, trained_by
from replication.records.specs import Artifact, Run, by_recipe
from replication.report.results import cells_of, started_of
from replication.report.tables import read_measured, render
from vitrail.errors import VitrailError
from vitrail.provenance import uncommitted

RECORDS = "nodes.jsonl.gz"
LOGS = "training_logs.csv"  # the published training logs of a paper


def planned_node(catalog: Catalog, output: Path) -> AnyNode | None:
    """Return the node whose record a path is; None if it is no record (but data)."""
    return catalog.node(output) if output in catalog.records else None


def ledger_of(catalog: Catalog) -> Ledger:
    """Return the ledger of a scale: its finished records and the nodes that are planned."""

    @functools.cache
    def published() -> dict[Path, Record]:
        try:
            return read_published(published_folder(catalog))
        except VitrailError:  # `published_faults` in `replication.publishing.compare` tells it
            return {}

    return Ledger(partial(planned_node, catalog), published)


def published_folder(catalog: Catalog) -> Path:
    """Return the folder of the committed results of the catalogue's scale."""
    return catalog.root / "results" / "published" / catalog.scale.name


def published_papers(catalog: Catalog) -> list[str]:
    """Return the names of the papers that have published results at the catalogue's scale."""
    folder = published_folder(catalog)
    return [name for name in catalog.papers if any((folder / name).glob("*.csv"))]


def claims_of(catalog: Catalog, folder: Path) -> pd.DataFrame:
    """Return all papers' claims, judged on the results of one folder; ids begin with the paper."""
    judged = []
    for paper in catalog.papers.values():
        claims = claims_of_paper(catalog, paper, folder, read_sound)
        judged.append(claims.assign(id=[f"{paper.name}/{name}" for name in claims["id"]]))
    return pd.concat(judged, ignore_index=True)


def claims_of_paper(
    catalog: Catalog, paper: Paper, folder: Path, record: Callable[[Path], Record | None]
) -> pd.DataFrame:
    """Return a paper's claims, judged on the results of one folder.

    `record` reads the record at a path and returns None if there is none.
    """
    tables = {name: cells_of(artifact, folder) for name, artifact in paper.artifacts.items()}
    started = {}
    if (times := paper.registered) is not None:
        runs = catalog.runs_of(*paper.artifacts.values())
        started = started_of((run.record for run in runs), record)
    return evaluate(paper.claims, tables, paper.artifacts, paper.tuning_results, times, started)


def rendered(artifact: Artifact, measured: Measured) -> dict[str, bytes]:
    """Return the files of an artifact by name, as its measurements and the code here give them."""
    with tempfile.TemporaryDirectory(prefix="vitrail-") as temporary:
        files = render(artifact, Path(temporary), measured)
        return {file.name: file.read_bytes() for file in files}


def altered_files(node: RenderingNode) -> list[Path]:
    """Return the rendered files that differ from what the artifact's measurements give now."""
    again = rendered(node.artifact, read_measured(node.artifact))
    return [file for file in node.files if file.read_bytes() != again[file.name]]


def rendering_fault(node: RenderingNode, ledger: Ledger) -> Fault | None:
    """Return the first fault of a rendering: of a record that it depends on, else of its files.

    None if there is no fault.
    """
    fault = ledger.fault(node.output)
    if fault is None and (altered := altered_files(node)):
        fault = Fault(f"{altered[0]} is not what its measurements give", node.output)
    return fault


def older_runs(runs: Iterable[Run]) -> list[str]:
    """Return the runs that were trained by other code than there is now; they are not repeated.

    Runs of one recipe are named once, by their folder below the folder of runs.
    """
    found = []
    for first, *others in by_recipe(runs):
        code = training_code(first.recipe, first.dataset).digest
        if {trained_by(run) for run in (first, *others)} - {None, code}:
            found.append(f"{first.paper}/{first.home.name}")
    return found


def read_published(folder: Path) -> dict[Path, Record]:
    """Read the published records, by the paths that they had when they were published.

    Raises:
        VitrailError: a record is damaged or was changed by hand.
    """
    records = {}
    for path in sorted(folder.glob(f"*/{RECORDS}")):
        try:
            lines = gzip.decompress(path.read_bytes()).splitlines()
            contents = [json.loads(line) for line in lines]
        except (OSError, EOFError, zlib.error, ValueError) as error:
            raise VitrailError(
                f"cannot read {path} ({error}); restore it with git checkout"
            ) from None
        for number, content in enumerate(contents, start=1):
            remedy = (
                "restore it with git checkout, or where another version of the program wrote it, "
                f"publish again: vitrail publish --scale {path.parents[1].name} --prune"
            )
            record = parse_record(content, f"{path}, line {number}", remedy)
            records[record.node.output] = record
    return records


def renderings(records: Mapping[Path, Record]) -> dict[str, RenderingNode]:
    """Return the renderings among records, by the targets of their artifacts."""
    nodes = (record.node for record in records.values())
    return {node.artifact.target: node for node in nodes if isinstance(node, RenderingNode)}


def as_lines(records: Iterable[Record]) -> bytes:
    """Return records in the format of `read_published`: one line of JSON each, gzip-compressed."""
    lines = (json.dumps(record.content, separators=(",", ":")) for record in records)
    return gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)


def changed_since_commit(folder: Path) -> Iterator[str]:
    """Yield a sentence for each published file that git sees differ from the last commit."""
    aside = shlex.join(["git", "stash", "push", "--include-untracked", "--", str(folder)])
    for name in uncommitted(folder):
        yield f"{name} is not as it was committed; commit it, or set it aside with {aside}"


def altered_publications(
    folder: Path, records: Mapping[Path, Record], targets: Set[str] | None = None
) -> Iterator[str]:
    """Yield a sentence for each published file that its records, rendered again, do not give.

    Of `targets`, if given, only the artifacts are rendered again; the others must exist.
    """
    known = set()
    for target, node in renderings(records).items():
        again = _given_by(node, records) if targets is None or target in targets else {}
        for path in (folder / node.paper / file.name for file in node.files):
            known.add(path)
            if not path.is_file():
                yield f"{path} is gone; restore it with git checkout"
            elif again and path.read_bytes() != again[path.name]:
                yield f"{path} is not what the published records give; restore it with git"
    for path in sorted(folder.glob("*/*.*")):
        if path not in known and path.name not in (RECORDS, LOGS):
            yield f"{path} rests on no published record; remove it"


def _given_by(node: RenderingNode, records: Mapping[Path, Record]) -> dict[str, bytes]:
    """Return the files of a table or figure by name, as records, rendered again, give them."""
    shown = [path for path in node.artifact.records if path in records]
    return rendered(node.artifact, {path: as_measured(records[path], path) for path in shown})
