"""What `vitrail publish` does: results become the committed ones if all they rest on is sound.

The rule: no file that a number depends on is changed or new, and none of those published before;
every rendered file is, byte for byte, what its measurements give; every record is what its node, as
it is planned now, would give, with the code and on the weights that are here; and all were made at
clean commits in the history of HEAD. A training by older code is published and named. Of each
paper's trainings the logs are published, too, by epoch.

Tables and figures can be rendered again from the published records alone, as a caption or the code
that draws can change without a new measurement.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

from replication.claims.comparison import as_measured, read_cells
from replication.config.settings import load_settings
from replication.plan.catalog import Catalog
from replication.publishing.quoted_numbers import changed_documents
from replication.records.nodes import RenderingNode, TrainingNode, report_files
from replication.records.records import Fault, Ledger, Record
from replication.records.specs import Run
from replication.report.html_report import write_summary
from replication.report.ledger import (
    LOGS,
    RECORDS,
    altered_publications,
    as_lines,
    changed_since_commit,
    ledger_of,
    older_runs,
    published_artifact,
    published_folder,
    read_published,
    rendering_fault,
)
from replication.report.progress import is_rendered
from replication.report.results import Results, results_of
from replication.report.tables import render
from replication.training.log_tables import DIGITS, logs_of
from vitrail.commands import count, say
from vitrail.errors import VitrailError, os_errors
from vitrail.files import sha256, write_atomically
from vitrail.provenance import DIRTY, changed_files, is_ancestor

# The page of HTML holds every figure once more, and is made from the rest.
REPORT = {file.name for file in report_files(Path("report.json")) if file.suffix != ".html"}
DECIDE = ("configs/", "src/", "envs/")  # where the files lie that a number can depend on
DOCUMENT = ".md"  # no number depends on those among them, and publishing renews what they quote


def publish(catalog: Catalog, prune: bool = False) -> None:
    """Copy a scale's results, and the numbers that documents quote, to the published ones.

    What is not built here stays, or is deleted with `prune`.

    Raises:
        VitrailError: the checkout or what is published has changes that are not committed, or a
            result is not what it rests on.
    """
    folder = published_folder(catalog)
    require_clean(catalog)
    built = [artifact for artifact in catalog.artifacts if is_rendered(artifact, catalog)]
    if not built:
        raise VitrailError(
            f"{catalog.results} has nothing to publish; run {catalog.snakemake('all')} first"
        )
    # Records and tables that were changed together agree with each other: only git tells.
    if changed := next(changed_since_commit(folder), None):
        raise VitrailError(changed)
    ledger = ledger_of(catalog)
    records: dict[Path, Record] = {}
    for artifact in built:
        records |= require_chain(catalog.rendering_node(artifact), ledger, catalog)
    kept = {} if prune else read_published(folder)
    if altered := next(altered_publications(folder, kept), None) if kept else None:
        raise VitrailError(f"{altered}, or publish with --prune what is built here alone")
    made = {artifact_of(record) for record in records.values()} - {None}
    kept = {
        path: record
        for path, record in kept.items()
        if path not in records and artifact_of(record) not in made
    }
    records = {**_behind(kept), **records}
    files = {
        str(file.relative_to(catalog.results)): file.read_bytes()
        for artifact in built
        for file in catalog.files(artifact)
    }
    files |= training_logs(catalog.runs_of(*built), folder, records) | _record_files(records)
    gone, quoting = replace_folder(folder, files, records, catalog, prune)

    rendered = sum(len(catalog.files(artifact)) for artifact in built)
    say(f"{count(rendered, 'file')} of {count(len(built), 'artifact')} are now in {folder}/.")
    for artifact in built:
        verdicts = read_cells(catalog.files(artifact)[0])["verdict"]
        if not_run := int((verdicts == "not_run").sum()):
            say(f"{artifact.target}: {count(not_run, 'cell')} not run.")
    for artifact in catalog.artifacts:
        if artifact not in built:
            say(f"{artifact.target}: not built, so what was published of it stays.")
    anew = catalog.snakemake("all", retrain="changed")
    for name in older_runs(catalog.runs_of(*built)):
        say(f"{name} was trained by older code ({anew} trains it anew).")
    for name in gone:
        say(f"Deleted {folder / name}.")
    for path in quoting:
        say(f"{path}: its numbers are those of these results now; read the sentences again.")
    say(f"Now: git add {' '.join(map(str, [folder, *quoting]))} && git commit")


def render_again(catalog: Catalog) -> None:
    """Render what is published of a scale again, from its records, and replace its files.

    The code that draws is that of now. So are captions and notes, unless an artifact's cells are
    planned otherwise by now or measured by other code: new words might not be true of its numbers.
    Nothing is measured or trained.

    Raises:
        VitrailError: the checkout or what is published has changes that are not committed, or
            nothing is published.
    """
    folder = published_folder(catalog)
    require_clean(catalog)
    if changed := next(changed_since_commit(folder), None):
        raise VitrailError(changed)
    records = read_published(folder)
    files: dict[str, bytes] = {}
    for path, record in list(records.items()):
        if isinstance(record.node, RenderingNode):
            node = _node_of_now(record.node, records, catalog)
            shown = node.artifact.records
            measured = {input_: as_measured(records[input_], input_) for input_ in shown}
            with tempfile.TemporaryDirectory(prefix="vitrail-") as temporary:
                made = render(node.artifact, Path(temporary), measured)
                files |= {f"{node.paper}/{file.name}": file.read_bytes() for file in made}
                outcome = {
                    "inputs": {
                        str(input_): values["sha256"] for input_, values in measured.items()
                    },
                    "outputs": {file.name: sha256(file) for file in made},
                }
            records[path] = Record(node, outcome, node.content())
    if not files:
        raise VitrailError(f"{folder} has nothing published; run vitrail publish first")
    before = {name: (folder / name).read_bytes() for name in files if (folder / name).is_file()}
    files |= _record_files(records)
    _, quoting = replace_folder(folder, files, records, catalog, prune=False)
    others = [name for name, content in before.items() if content != files[name]]
    say(f"{count(len(others), 'file')} of {len(before)} in {folder}/ came out otherwise.")
    for name in others:
        say(f"  {name}")
    say(f"Now: git add {' '.join(map(str, [folder, *quoting]))} && git commit")


def _node_of_now(
    node: RenderingNode, records: Mapping[Path, Record], catalog: Catalog
) -> RenderingNode:
    """The node that is planned now of what is published, with its old words where it has to be."""
    artifacts = {artifact.target: artifact for artifact in catalog.artifacts}
    if node.artifact.target not in artifacts:
        return node
    planned = catalog.rendering_node(artifacts[node.artifact.target])
    here, there = planned.artifact, node.artifact
    same = (here.cells, here.measurements) == (there.cells, there.measurements)
    if same and all(
        records[path].outcome["code"] == catalog.node(path).code for path in there.records
    ):
        return planned
    return node.model_copy(update={"code": planned.code, "commit": planned.commit})


def _record_files(records: Mapping[Path, Record]) -> dict[str, bytes]:
    """The files of the records, one for each paper, by their names in the published folder."""
    ordered = [record for _, record in sorted(records.items())]
    return {
        f"{paper}/{RECORDS}": as_lines(own)
        for paper in {record.node.paper for record in ordered}
        if (own := [record for record in ordered if record.node.paper == paper])
    }


def _behind(records: Mapping[Path, Record]) -> dict[Path, Record]:
    """The renderings among some published records, and what they rest on."""
    needed: dict[Path, Record] = {}
    waiting = [path for path, record in records.items() if isinstance(record.node, RenderingNode)]
    while waiting:
        path = waiting.pop()
        if path in records and path not in needed:
            needed[path] = records[path]
            waiting += records[path].node.inputs
    return needed


def require_clean(catalog: Catalog) -> None:
    """Raise a `VitrailError` if a file that a number can depend on is not committed.

    What `fast_dev_run` made is refused, too: its numbers mean nothing.
    """
    if catalog.settings.fast_dev_run:
        raise VitrailError(
            "the numbers of a fast_dev_run mean nothing and are not published; set fast_dev_run: "
            "false in configs/default.yaml"
        )
    changed = changed_files()
    if changed is None:
        raise VitrailError(
            f"{catalog.root.absolute()} is no git repository with a commit; publish from a clone"
        )
    if deciding := [
        name for name in changed if name.startswith(DECIDE) and not name.endswith(DOCUMENT)
    ]:
        raise VitrailError(
            f"{deciding[0]} differs from the last commit or is not in it; commit, restore or "
            "remove it first"
        )


def require_chain(node: RenderingNode, ledger: Ledger, catalog: Catalog) -> dict[Path, Record]:
    """Return the records behind a rendering, itself among them.

    Raises:
        VitrailError: one of them is not what it rests on, or was not made at clean commits.
    """
    if fault := rendering_fault(node, ledger):
        raise VitrailError(fault.remedy(node.artifact.target, catalog.snakemake))
    records = ledger.behind(node.output)
    for path, record in records.items():
        remove: tuple[Path, ...] = ()
        if isinstance(record.node, TrainingNode):
            remove = (record.node.run.folder,)
        if found := next(filter(None, map(fault_of_commit, record.commits)), None):
            fault = Fault(f"{path}: {found}", path, remove)
            raise VitrailError(fault.remedy(node.artifact.target, catalog.snakemake))
    return records


@functools.cache
def fault_of_commit(commit: str) -> str | None:
    """Why what was made at a commit may not be published, None if it may."""
    if not commit:
        return "it does not say at which commit it was made"
    if commit.endswith(DIRTY):
        return f"it was made at {commit}, with uncommitted changes"
    if not re.fullmatch("[0-9a-f]{40}", commit):
        return f"'{commit}' is no commit"
    if not is_ancestor(commit):
        return f"its commit {commit} is not in the history of HEAD"
    return None


def training_logs(
    runs: Iterable[Run], folder: Path, records: Mapping[Path, Record]
) -> dict[str, bytes]:
    """Make the CSV of each paper's training logs; what `folder` has of other runs stays.

    `records` are all that will be published.
    """
    homes: dict[str, dict[Path, None]] = {}
    for run in runs:
        homes.setdefault(run.paper, {})[run.home] = None
    nodes = [record.node for record in records.values()]
    named = {node.run.home.name for node in nodes if isinstance(node, TrainingNode)}
    files = {}
    for paper, new in homes.items():
        name = f"{paper}/{LOGS}"
        tables = [table.assign(run=run.name) for run in new for table in logs_of(run)]
        if (path := folder / name).is_file():
            old = pd.read_csv(path)
            tables.append(old[old["run"].isin(named - {run.name for run in new})])
        if tables:
            table = pd.concat(tables, ignore_index=True).sort_values(["run", "seed", "step"])
            table = table[["run", *table.columns.drop("run")]]
            files[name] = table.to_csv(index=False, float_format=DIGITS).encode()
    return files


def replace_folder(
    folder: Path,
    files: Mapping[str, bytes],
    records: Mapping[Path, Record],
    catalog: Catalog,
    prune: bool,
) -> tuple[list[str], list[Path]]:
    """Lay files over a folder, with its report, in one rename, and renew what documents quote.

    Returns what is gone, and the documents that have changed.

    Raises:
        VitrailError: it cannot be written, or a document quotes a number that there is not: then
            nothing is changed; or a document cannot be written, after the folder was.
    """
    new, old = (folder.with_name(f".{folder.name}.{os.getpid()}.{end}") for end in ("new", "old"))
    held = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    try:
        if folder.exists() and not prune:
            shutil.copytree(folder, new)
        for name, content in files.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            (new / name).write_bytes(content)
        results = published_results(catalog, new, records)
        write_summary(results, new / "report.json")
        scale = catalog.scale.name
        names = {scale, None} if scale == load_settings(catalog.root).scale else {scale}
        texts = changed_documents(catalog.root, new, names)
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
    except OSError as error:
        what = f"cannot write {folder}: {error.strerror or error}"
        raise VitrailError(f"{what}; make room or correct the permissions") from None
    finally:
        if old.exists() and not folder.exists():  # also when it was interrupted between the two
            old.rename(folder)
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
    for path, text in texts.items():
        with os_errors(
            f"cannot write {path}", f"correct that, then publish again: {folder} is new"
        ):
            write_atomically(path, text)
    return sorted(held - {*files, *REPORT}) if prune else [], list(texts)


def published_results(catalog: Catalog, folder: Path, records: Mapping[Path, Record]) -> Results:
    """The results of a scale that are published in a folder, with their records.

    Raises:
        VitrailError: a file of results is damaged.
    """
    shown = [published_artifact(planned, records.values()) for planned in catalog.artifacts]
    return results_of(catalog.said, shown, folder, records.get)


def artifact_of(record: Record) -> str | None:
    """The target that a record is the rendering of, None if it is no rendering."""
    return record.node.artifact.target if isinstance(record.node, RenderingNode) else None
