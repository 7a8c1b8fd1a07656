"""Write published records to the folder of runs, so that what is published is not made again.

This is `vitrail restore`. Weights are not published. So a restored training cannot be measured
again, but tables and figures can be rendered from what was measured on it, beside new trainings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from replication.plan.catalog import Catalog
from replication.records.nodes import TrainingNode
from replication.records.records import Record, planned_otherwise, read_sound
from replication.records.specs import Artifact, Measurement, Run
from replication.report.ledger import published_folder, read_published
from replication.report.progress import state_of
from vitrail.errors import VitrailError
from vitrail.files import write_atomically


def restore(catalog: Catalog, artifacts: Sequence[Artifact]) -> list[Record]:
    """Write the published records of artifacts' trainings and measurements; return them.

    A training is restored with all that depends on it, or not at all: with its measurements, and
    with the trainings that start from its weights. It is not restored if a part of that is not
    published as it is planned now, or if it was begun or made here. Records that were restored
    before are written again, after their inputs.

    Raises:
        VitrailError: no record can be restored; an input of one does not exist, such as a dataset's
            receipt: Snakemake would make it, and then repeat all that depends on it; the published
            records cannot be read; or a file cannot be written.
    """
    folder = published_folder(catalog)
    published = read_published(folder)
    records = [
        published[path]
        for group in _groups(catalog, artifacts)
        if _is_restorable(group, published, catalog)
        for path in group
    ]
    if not records:
        raise VitrailError(
            f"{folder} has nothing to restore below {catalog.runs_root}/: what these targets show "
            "is made here, or is not published as it is planned now; make it with snakemake"
        )
    made = {record.node.output for record in records}
    inputs = {path for record in records for path in catalog.node(record.node.output).inputs}
    if missing := sorted(path for path in inputs - made if not path.exists()):
        raise VitrailError(
            f"{', '.join(map(str, missing))}: missing, and Snakemake repeats what is older than "
            f"its inputs; first run {catalog.snakemake(*map(str, missing))}"
        )
    for record in records:
        write_atomically(record.node.output, record.text)
    return records


def _groups(catalog: Catalog, artifacts: Sequence[Artifact]) -> list[list[Path]]:
    """Return the records that are restored together, each after those that it depends on."""
    groups: dict[Path, list[Path]] = {}
    of: list[Run | Measurement] = [*catalog.runs_of(*artifacts)]
    of += catalog.measurements_of(*artifacts)
    for each in of:
        path, run = (each.record, each) if isinstance(each, Run) else (each.path, each.run)
        groups.setdefault(run.lineage[0].record if run else path, []).append(path)
    return [*groups.values()]


def _is_restorable(
    group: Sequence[Path], published: Mapping[Path, Record], catalog: Catalog
) -> bool:
    """Tell whether records are published as they are planned now, and none is made here."""
    for path in group:
        record, node, here = published.get(path), catalog.node(path), read_sound(path)
        if record is None or any(planned_otherwise(record, node)):
            return False
        if here is not None and here.content != record.content:
            return False
        if isinstance(node, TrainingNode):
            run = node.run
            if run.weights.is_file() or state_of(run) == "resumable":
                return False
    return True
