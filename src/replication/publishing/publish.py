"""Publish results: copy them to the committed ones if all that they depend on is sound.

This is `vitrail publish`. Results are sound if no file that a number depends on is changed or new,
nor any file that was published before; if every rendered file is, byte for byte, what its
measurements give; if every record is what its node as planned now would give, with the code and
weights that are here; and if all was made at clean commits in the history of HEAD. A training by
older code is published, and its recipe is named. The logs of each paper's trainings are published,
too, by epoch.

Tables and figures can be rendered again from the published records alone, for example after a
change of a caption or of the code that draws, without a new measurement.
"""

from __future__ import annotations

import functools
import hashlib
import re
import shutil
import tempfile
from collections.abc import Collection, Iterable, Mapping
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
    published_folder,
    read_published,
    rendered,
    rendering_fault,
    renderings,
)
from replication.report.progress import is_rendered
from replication.report.results import Results, results_of
from replication.training.log_tables import DIGITS, logs_of
from vitrail.commands import count, say
from vitrail.errors import VitrailError, os_errors
from vitrail.files import write_atomically
from vitrail.provenance import DIRTY, changed_files, is_ancestor

# The HTML page is left out: it contains every figure again, and is made from the other files.
REPORT = {file.name for file in report_files(Path("report.json")) if file.suffix != ".html"}
DECIDE = ("configs/", "src/", "envs/")  # folders of the files that a number can depend on
DOCUMENT = ".md"  # files in them on which no number depends; publishing updates their quotes


def publish(catalog: Catalog, prune: bool = False) -> None:
    """Copy a scale's results to the published ones, and update the numbers that documents quote.

    Published artifacts that are not built here stay; with `prune` they are deleted.

    Raises:
        VitrailError: the checkout or the published folder has uncommitted changes, or a result is
            not what its records give.
    """
    folder = published_folder(catalog)
    require_clean(catalog)
    built = [artifact for artifact in catalog.artifacts if is_rendered(artifact, catalog)]
    if not built:
        raise VitrailError(
            f"{catalog.results} has nothing to publish; run {catalog.snakemake('all')} first"
        )
    # If a record and its table were changed together, they agree; only git shows the change.
    if changed := next(changed_since_commit(folder), None):
        raise VitrailError(changed)
    ledger = ledger_of(catalog)
    records: dict[Path, Record] = {}
    for artifact in built:
        records |= require_chain(catalog.rendering_node(artifact), ledger, catalog)
    kept = {} if prune else read_published(folder)
    if altered := next(altered_publications(folder, kept), None) if kept else None:
        raise VitrailError(f"{altered}, or publish with --prune what is built here alone")
    made = renderings(records)
    replaced = {node.output for target, node in renderings(kept).items() if target in made}
    kept = {
        path: record
        for path, record in kept.items()
        if path not in records and path not in replaced
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
    """Render a scale's published artifacts again, from their records, and replace their files.

    The code that draws is the present one. So are captions and notes, unless an artifact's cells
    are now planned differently or were measured by other code: new words might not be true of its
    numbers. Nothing is measured or trained.

    Raises:
        VitrailError: the checkout or the published folder has uncommitted changes, or nothing is
            published.
    """
    folder = published_folder(catalog)
    require_clean(catalog)
    if changed := next(changed_since_commit(folder), None):
        raise VitrailError(changed)
    records = read_published(folder)
    files: dict[str, bytes] = {}
    for former in renderings(records).values():
        node = _node_of_now(former, records, catalog)
        measured = {path: as_measured(records[path], path) for path in node.artifact.records}
        made = rendered(node.artifact, measured)
        files |= {f"{node.paper}/{name}": content for name, content in made.items()}
        outcome = {
            "inputs": {str(path): values["sha256"] for path, values in measured.items()},
            "outputs": {
                name: hashlib.sha256(content).hexdigest() for name, content in made.items()
            },
        }
        records[former.output] = Record(node, outcome, node.content())
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
    """Return the node planned now for a published one, with the published words if necessary.

    They are necessary if the cells are planned differently now, or were measured by other code.
    """
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
    """Return the files of the records, one for each paper, by their names when published."""
    ordered = [record for _, record in sorted(records.items())]
    return {
        f"{paper}/{RECORDS}": as_lines(own)
        for paper in {record.node.paper for record in ordered}
        if (own := [record for record in ordered if record.node.paper == paper])
    }


def _behind(records: Mapping[Path, Record]) -> dict[Path, Record]:
    """Return the renderings among published records, and the records that they depend on."""
    needed: dict[Path, Record] = {}
    waiting = [node.output for node in renderings(records).values()]
    while waiting:
        path = waiting.pop()
        if path in records and path not in needed:
            needed[path] = records[path]
            waiting += records[path].node.inputs
    return needed


def require_clean(catalog: Catalog) -> None:
    """Raise a `VitrailError` if a file that a number can depend on is not committed.

    Raise it also for results of `fast_dev_run`, whose numbers mean nothing.
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
    """Return the record of a rendering and all that it depends on.

    Raises:
        VitrailError: a record has a fault, or was not made at clean commits in the history of HEAD.
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
    """Return why results of a commit may not be published; None if they may."""
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
    """Return the CSV of each paper's training logs, by its name in the published folder.

    It has the logs of those of `runs` whose weights are here, and those in `folder` of all other
    trainings among `records`, which are all that will be published.
    """
    homes: dict[str, dict[Path, None]] = {}
    trained = set()
    for run in runs:
        homes.setdefault(run.paper, {})[run.home] = None
        if run.weights.is_file():
            trained.add((run.home.name, run.seed))
    nodes = [record.node for record in records.values() if isinstance(record.node, TrainingNode)]
    others = {(node.run.home.name, node.run.seed) for node in nodes} - trained
    files = {}
    for paper, made in homes.items():
        name = f"{paper}/{LOGS}"
        new = [table.assign(run=home.name) for home in made for table in logs_of(home)]
        tables = [_of_trainings(table, trained) for table in new]
        if (path := folder / name).is_file():
            tables.append(_of_trainings(pd.read_csv(path), others))
        if tables:
            table = pd.concat(tables, ignore_index=True).sort_values(["run", "seed", "step"])
            table = table[["run", *table.columns.drop("run")]]
            files[name] = table.to_csv(index=False, float_format=DIGITS).encode()
    return files


def _of_trainings(logs: pd.DataFrame, trainings: Collection[tuple[str, int]]) -> pd.DataFrame:
    """Return the rows of logs whose run and seed are one of `trainings`."""
    return logs[[pair in trainings for pair in zip(logs["run"], logs["seed"], strict=True)]]


def replace_folder(
    folder: Path,
    files: Mapping[str, bytes],
    records: Mapping[Path, Record],
    catalog: Catalog,
    prune: bool,
) -> tuple[list[str], list[Path]]:
    """Write files over those of a folder, with its report; update documents.

    The report is computed from `records`. With `prune`, files that are not given are deleted.
    Returns the names of deleted files, and the documents whose quoted numbers have changed.

    All is first written into a temporary folder, and then over the folder file by file. After an
    interruption the folder differs from the last commit, from which git restores it.

    Raises:
        VitrailError: a document quotes a number that does not exist: then nothing is changed; the
            folder cannot be written; or a document cannot be written: then the folder is new.
    """
    held = _files_of(folder)
    problem = f"cannot write {folder} or the temporary folder"
    remedy = "make room or correct the permissions, restore the folder by git, then publish again"
    with os_errors(problem, remedy), tempfile.TemporaryDirectory(prefix="vitrail-") as temporary:
        new = Path(temporary) / folder.name
        if folder.exists() and not prune:
            shutil.copytree(folder, new)
        for name, content in files.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            (new / name).write_bytes(content)
        write_summary(published_results(catalog, new, records), new / "report.json")
        scale = catalog.scale.name
        names = {scale, None} if scale == load_settings(catalog.root).scale else {scale}
        texts = changed_documents(catalog.root, new, names)
        for name, file in _files_of(new).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, folder / name)
        for name in held.keys() - _files_of(new).keys():
            held[name].unlink()
    for path, text in texts.items():
        with os_errors(
            f"cannot write {path}", f"correct that, then publish again: {folder} is new"
        ):
            write_atomically(path, text)
    return sorted(held.keys() - {*files, *REPORT}) if prune else [], list(texts)


def _files_of(folder: Path) -> dict[str, Path]:
    """Return all files below a folder by their paths relative to it."""
    return {str(file.relative_to(folder)): file for file in folder.rglob("*") if file.is_file()}


def published_results(catalog: Catalog, folder: Path, records: Mapping[Path, Record]) -> Results:
    """Return the results of a scale in a published folder, with their records.

    Raises:
        VitrailError: a file of results is damaged.
    """
    published = {target: node.artifact for target, node in renderings(records).items()}
    shown = (published.get(planned.target, planned) for planned in catalog.artifacts)
    return results_of(catalog.said, shown, folder, records.get)
