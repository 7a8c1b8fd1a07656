"""Results as the commands read them, and the chain that they hang on.

    CSV <- measurement <- weights <- code

A rendered file is what its measurements give. A measurement names the digests of its code and
weights, and a receipt those of a run's weights. The published folder has a manifest of all these.
"""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from replication.engine.model import trained_weights
from replication.evidence.claims import evaluate
from replication.evidence.comparison import read_measurement
from replication.evidence.report import cells_of
from replication.evidence.tables import render
from replication.plan.catalog import Artifact, Catalog, Measurement, Run
from replication.plan.code import measuring_digest
from vitrail.errors import VitrailError
from vitrail.files import sha256
from vitrail.provenance import read_provenance

MANIFEST = "manifest.json"
LOGS = "training_logs"  # their file in a paper's folder, and their entry in the manifest


def published_folder(catalog: Catalog) -> Path:
    """Where the committed results of the catalogue's scale lie.

    The former folder, which a publication killed between its two renames leaves, is put back.
    """
    folder = catalog.root / "results" / "published" / catalog.scale.name
    left = sorted(folder.parent.glob(f".{folder.name}.*.old"))
    if left and not folder.exists():
        left[-1].rename(folder)
    return folder


def claims_of(catalog: Catalog, folder: Path) -> pd.DataFrame:
    """Every paper's claims, judged on the results of one folder; their ids begin with the paper."""
    judged = []
    for paper in catalog.papers.values():
        tables = {name: cells_of(one, catalog, folder) for name, one in paper.artifacts.items()}
        claims = evaluate(paper.claims, tables, paper.artifacts)
        judged.append(claims.assign(id=[f"{paper.name}/{name}" for name in claims["id"]]))
    return pd.concat(judged, ignore_index=True)


def altered_files(artifact: Artifact, catalog: Catalog) -> list[Path]:
    """The rendered files of an artifact that its measurements, rendered again, do not give."""
    with tempfile.TemporaryDirectory(prefix="vitrail-") as temporary:
        again = render(catalog, artifact, Path(temporary))
        pairs = zip(catalog.files(artifact), again, strict=True)
        return [file for file, fresh in pairs if file.read_bytes() != fresh.read_bytes()]


def published_papers(catalog: Catalog) -> list[str]:
    """Return the names of the papers that have published results at the catalogue's scale.

    Raises:
        VitrailError: the manifest of the published results is missing or damaged.
    """
    entries = read_manifest(published_folder(catalog)).values()
    folders = {Path(file).parts[0] for entry in entries for file in entry["files"]}
    return [name for name in catalog.papers if name in folders]


def fault_of(measurement: Measurement, catalog: Catalog) -> str | None:
    """Why a measurement that was taken is not what its job would give now, None if it is.

    Raises:
        VitrailError: its file, or a receipt, is damaged.
    """
    path, run = measurement.path, measurement.run
    if (taken := read_measurement(path)) is None:
        return None
    job = catalog.measurement_job(measurement)
    if taken.get("code") != measuring_digest(job.function, job.args, job.recipe, job.reads):
        return f"{path} was measured by other code than is here: delete {path}"
    if taken.get("identity") != job.identity:
        return f"{path} was measured with other arguments than are written: delete {path}"
    if run is None:
        return None
    for seed in measurement.seeds:
        weights, receipts = run.weights(seed), run.receipts_of([seed])
        anew = f"delete {weights.parent} and {' and '.join(map(str, receipts))}"
        if not all(file.is_file() for file in (weights, *receipts)):
            return f"{path} was measured on {weights}, which no receipt vouches for: {anew}"
        digests = {sha256_once(weights), *(trained_weights(one).get(seed) for one in receipts)}
        if digests != {taken.get("weights", {}).get(str(seed))}:
            return f"{path} was measured on other weights than {weights} holds: {anew}"
        if fault := _fault_of_start(run, seed):
            return f"{fault}: {anew}"
    return None


def _fault_of_start(run: Run, seed: int) -> str | None:
    """Whether a run was trained from other weights than the run has that it starts from."""
    if run.source is None or not run.source.weights(seed).is_file():
        return None
    facts = read_provenance(run.seed_folder(seed)) or {}
    if facts.get("initial_sha256") != sha256_once(run.source.weights(seed)):
        return f"{run.weights(seed)} was trained from other weights than {run.source.folder} has"
    return _fault_of_start(run.source, seed)


sha256_once = functools.cache(sha256)  # of large files that several measurements rest on


def older_runs(runs: Iterable[Run]) -> list[str]:
    """The runs that other code has trained than is here: no training is repeated for that."""
    return [
        f"{run.paper}/{run.folder.name}" for run in runs if run.trained_by(run.seeds) - {run.code}
    ]


def manifest_entry(artifact: Artifact, catalog: Catalog) -> dict[str, Any]:
    """What an artifact hangs on: its files, its measurements, their weights and code."""
    taken = {one.path: read_measurement(one.path) for one in artifact.measurements}
    return {
        "files": {
            str(file.relative_to(catalog.results)): sha256(file) for file in catalog.files(artifact)
        },
        "measurements": {
            str(path.relative_to(catalog.runs_root)): {
                "sha256": one["sha256"],
                "code": one.get("code"),
                "weights": one.get("weights", {}),
                "commit": one["provenance"].get("commit"),
            }
            for path, one in taken.items()
            if one
        },
        "trained by code": {
            f"{run.paper}/{run.folder.name}/seed{seed}": next(iter(run.trained_by([seed])), None)
            for run in artifact.runs
            for seed in run.seeds
        },
    }


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of published results: `manifest_entry` by target.

    Raises:
        VitrailError: it is missing or damaged.
    """
    path = folder / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for entry in manifest.values():
            entry["files"].items(), entry["measurements"].items()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise VitrailError(
            f"cannot read {path} ({type(error).__name__}: {error}); restore it with git checkout, "
            "or publish again"
        ) from None
    return manifest
