"""Write published records to the folder of runs, so that what is published is not made again.

This is `vitrail restore`. Weights are not published. So a restored training cannot be measured
again, but tables and figures can be rendered from what was measured on it, beside new trainings.
"""

from __future__ import annotations

from collections.abc import Iterable

from replication.plan.catalog import Catalog
from replication.records.records import Record, faults_of
from replication.records.specs import Artifact
from replication.report.ledger import published_folder, read_published
from vitrail.errors import VitrailError
from vitrail.files import write_atomically


def restore(catalog: Catalog, artifacts: Iterable[Artifact]) -> list[Record]:
    """Write the published records of artifacts' trainings and measurements that are not made.

    A record is left out if it differs from what is planned now: by its recipe, data, code or
    weights.

    Raises:
        VitrailError: an input of these records, such as a dataset's receipt, does not exist:
            Snakemake would make it, and then repeat all that depends on it. Or the published
            records cannot be read, or a file cannot be written.
    """
    published = read_published(published_folder(catalog))
    shown = [*artifacts]
    known = [run.record for run in catalog.runs_of(*shown)]
    known += [measured.path for measured in catalog.measurements_of(*shown)]
    due = {path: published[path] for path in known if path in published and not path.exists()}
    inputs = {path for name in due for path in catalog.node(name).inputs} - {*known}
    if missing := sorted(path for path in inputs if not path.exists()):
        raise VitrailError(
            f"{missing[0]} does not exist, and Snakemake repeats what is older than its inputs; "
            f"first run {catalog.snakemake(*map(str, missing))}"
        )
    restored = []
    for path, record in due.items():  # trainings first: measurements are compared with them
        if not any(faults_of(record, catalog.node(path), lambda: published)):
            write_atomically(path, record.text)
            restored.append(record)
    return restored
