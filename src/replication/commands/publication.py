"""How results become the committed ones, if all that they hang on is as it says.

The rule: no file of the checkout is changed or new (the published results and what git ignores
excepted); every rendered file is, byte for byte, what its measurements give; every measurement was
taken by the code and with the arguments that are here, on the weights that its run was trained to;
and both were made at clean commits in the history of HEAD. A training by older code is published
and named. Of each paper's trainings the logs are published, too, by epoch.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from replication.commands.agreement import altered_publications
from replication.commands.logs import DIGITS, logs_of
from replication.commands.results import (
    LOGS,
    MANIFEST,
    altered_files,
    fault_of,
    manifest_entry,
    older_runs,
    published_folder,
    read_manifest,
)
from replication.commands.state import is_rendered
from replication.evidence.comparison import read_cells, read_measurement
from replication.evidence.quotes import refresh_documents
from replication.evidence.report import report, results_of
from replication.plan.catalog import Artifact, Catalog, Run, with_sources
from replication.plan.settings import load_settings
from vitrail.commands import count, say
from vitrail.errors import VitrailError
from vitrail.files import sha256
from vitrail.provenance import DIRTY, changed_files, read_provenance

REPORT = "report.md"  # the page of HTML holds every figure once more, and is made from the rest


def publish(catalog: Catalog, prune: bool = False) -> None:
    """Copy a scale's results, and the numbers that documents quote, to the published ones.

    What is not built here stays, or is deleted with `prune`.

    Raises:
        VitrailError: the checkout has changes, or a result is not what it hangs on.
    """
    folder = published_folder(catalog)
    require_clean(catalog)
    scale = catalog.scale.name
    built = [artifact for artifact in catalog.artifacts if is_rendered(artifact, catalog)]
    if not built:
        raise VitrailError(
            f"{catalog.results} has nothing to publish; run snakemake all --config scale={scale} "
            "first"
        )
    for artifact in built:
        require_chain(artifact, catalog)
    known = (folder / MANIFEST).is_file() and not prune
    if known and (altered := next(altered_publications(folder), None)):
        raise VitrailError(f"{altered}, or publish with --prune what is built here alone")
    manifest = read_manifest(folder) if known else {}
    manifest |= {_target(artifact): manifest_entry(artifact, catalog) for artifact in built}
    files = {
        str(file.relative_to(catalog.results)): file.read_bytes()
        for artifact in built
        for file in catalog.files(artifact)
    }
    logs = training_logs(built, folder, manifest)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in logs.items()}
    before = manifest.get(LOGS, {}).get("files", {})
    manifest[LOGS] = {"files": {**before, **digests}, "measurements": {}}
    gone = replace_folder(folder, {**files, **logs}, manifest, catalog, prune)

    say(f"{count(len(files), 'file')} of {count(len(built), 'artifact')} are now in {folder}/.")
    for artifact in built:
        verdicts = read_cells(catalog.files(artifact)[0])["verdict"]
        if not_run := int((verdicts == "not_run").sum()):
            say(f"{_target(artifact)}: {count(not_run, 'cell')} not run.")
    for artifact in catalog.artifacts:
        if artifact not in built:
            say(f"{_target(artifact)}: not built, so what was published of it stays.")
    for name in older_runs(with_sources(run for artifact in built for run in artifact.runs)):
        say(f"{name} was trained by older code (--config retrain=changed trains it anew).")
    for name in gone:
        say(f"Deleted {folder / name}.")
    # Documents quote the scale that everybody can make.
    quoting = scale == load_settings(catalog.root).scale
    changed = refresh_documents(catalog.root, folder) if quoting else []
    for path in changed:
        say(f"{path}: its numbers are those of these results now; read the sentences again.")
    say(f"Now: git add {' '.join(map(str, [folder, *changed]))} && git commit")


def require_clean(catalog: Catalog) -> None:
    """Raise a `VitrailError` if the checkout has changes: nobody could get its code."""
    changed = changed_files()
    if changed is None:
        raise VitrailError(
            f"{catalog.root.absolute()} is no git repository with a commit; publish from a clone"
        )
    if changed:
        raise VitrailError(
            f"{changed[0]} differs from the last commit or is not in it; commit, restore or remove "
            "it first"
        )


def require_chain(artifact: Artifact, catalog: Catalog) -> None:
    """Raise a `VitrailError` if an artifact is not what its measurements, weights and code make."""
    again = f"run snakemake {_target(artifact)} --config scale={catalog.scale.name}"
    if altered := altered_files(artifact, catalog):
        raise VitrailError(f"{altered[0]} is not what its measurements give; delete it and {again}")
    for measurement in artifact.measurements:
        if fault := fault_of(measurement, catalog):
            raise VitrailError(f"{fault} and {again}")
        taken = read_measurement(measurement.path)
        if taken and (fault := fault_of_commits(str(taken["provenance"].get("commit") or ""))):
            raise VitrailError(f"{measurement.path}: {fault}; delete it and {again}")
    runs = [one.run for one in artifact.measurements if one.run and one.path.is_file()]
    for run in with_sources(runs):
        for seed in run.seeds:
            folder, again = run.seed_folder(seed), f"delete {run.folder} and train again"
            if (facts := read_provenance(folder)) is None:
                what = f"{folder} has no provenance.json"
                raise VitrailError(f"{what}, and {_target(artifact)} was measured on it; {again}")
            if fault := fault_of_commits(str(facts.get("commit") or "")):
                raise VitrailError(f"{folder}: {fault}; {again}")


@functools.cache
def fault_of_commits(commits: str) -> str | None:
    """Why what was made at `commits`, joined by "+", may not be published, None if it may."""
    for commit in commits.split("+"):
        if not commit:
            return "it does not say at which commit it was made"
        if commit.endswith(DIRTY):
            return f"it was made at {commit}, with uncommitted changes"
        if not re.fullmatch("[0-9a-f]{40}", commit):
            return f"'{commit}' is no commit"
        is_ancestor = ["git", "merge-base", "--is-ancestor", commit, "HEAD"]
        if subprocess.run(is_ancestor, capture_output=True, check=False).returncode:
            return f"its commit {commit} is not in the history of HEAD"
    return None


def training_logs(
    artifacts: Iterable[Artifact], folder: Path, manifest: Mapping[str, Any]
) -> dict[str, bytes]:
    """Make the CSV of each paper's training logs; what `folder` has of other runs stays."""
    runs: dict[str, list[Run]] = {}
    for artifact in artifacts:
        runs.setdefault(artifact.paper, []).extend(artifact.runs)
    named = {name for entry in manifest.values() for name in entry.get("trained by code", ())}
    files = {}
    for paper, behind in runs.items():
        name = f"{paper}/{LOGS}.csv"
        new = dict.fromkeys(run.folder for run in behind)
        tables = [one.assign(run=run.name) for run in new for one in logs_of(run)]
        if (path := folder / name).is_file() and name in manifest.get(LOGS, {}).get("files", {}):
            old = pd.read_csv(path)
            others = {one.split("/")[1] for one in named} - {run.name for run in new}
            tables.append(old[old["run"].isin(others)])
        if tables:
            table = pd.concat(tables, ignore_index=True).sort_values(["run", "seed", "step"])
            table = table[["run", *table.columns.drop("run")]]
            files[name] = table.to_csv(index=False, float_format=DIGITS).encode()
    return files


def replace_folder(
    folder: Path,
    files: Mapping[str, bytes],
    manifest: Mapping[str, Any],
    catalog: Catalog,
    prune: bool,
) -> list[str]:
    """Lay files over a folder, with its report and manifest, in one rename; return what is gone.

    Raises:
        VitrailError: it cannot be written.
    """
    new, old = (folder.with_name(f".{folder.name}.{os.getpid()}.{end}") for end in ("new", "old"))
    held = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    try:
        if folder.exists() and not prune:
            shutil.copytree(folder, new)
        for name, content in files.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            (new / name).write_bytes(content)
        (new / REPORT).write_text(report(results_of(catalog, new)), encoding="utf-8")
        told = {**manifest, "report": {"files": {REPORT: sha256(new / REPORT)}, "measurements": {}}}
        (new / MANIFEST).write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")
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
    return sorted(held - {*files, REPORT, MANIFEST}) if prune else []


def _target(artifact: Artifact) -> str:
    return f"{artifact.paper}_{artifact.name}"
