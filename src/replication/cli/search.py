"""``vitrail search``: learning rates tried on held-out training images, into ``searched.csv``."""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from replication.cli.options import Data, Results, Runs, Scale, open_catalog
from vitrail.commands import say
from vitrail.commands.app import command
from vitrail.errors import VitrailError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replication.config.tuning import Trial
    from replication.plan.catalog import Catalog
    from replication.plan.paper import Paper


@command()
def search(
    paper: Annotated[str, typer.Argument(metavar="PAPER", help="A folder of configs/papers/.")],
    options: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- OPTIONS", help="Options of snakemake.", show_default=False),
    ] = None,
    scale: Scale = None,
    data: Data = None,
    runs: Runs = None,
    results: Results = None,
) -> None:
    """Search the learning rates that a scale's `searches` name.

    Each recipe is trained on four fifths of its training images at each rate, then at the best for
    twice as long; the rest of them judge it. snakemake makes the trials that
    configs/papers/PAPER/searched.csv lacks, and their scores are added there. What was cut off goes
    on when the command is given again.

    \b
    vitrail search octic
    vitrail search octic --scale small -- --profile slurm
    vitrail search octic --scale small -- -n
    """
    asked: list[Trial] = []
    while True:  # twice the steps are planned when the best rate is known
        catalog = open_catalog(scale, runs=runs, results=results, data=data)
        about = catalog.paper(paper)
        if not about.trials:
            raise VitrailError(
                f"scale '{catalog.scale.name}' of '{paper}' has no searches; name the recipes "
                f"under searches: in {about.folder}/scales/{catalog.scale.name}.yaml"
            )
        if add_scores(catalog, about):
            continue
        due = [trial for trial in about.trials if trial not in about.searches.found]
        say(f"{len(due)} of {len(about.trials)} scores are not in {about.searched_path}")
        if not due or due == asked:  # as after a dry run
            return
        asked = due
        command = catalog.snakemake(*targets_of(about, due), *(options or ()))
        done = subprocess.run([sys.executable, "-m", *shlex.split(command)], check=False)
        if done.returncode:
            sys.exit(done.returncode)


def add_scores(catalog: Catalog, paper: Paper) -> int:
    """Add to ``searched.csv`` the scores of the trials that are made; return how many it lacked.

    Raises:
        VitrailError: the record of a trial is damaged.
    """
    from replication.config.tuning import add_found
    from replication.records.records import require_record
    from replication.report.ledger import ledger_of

    ledger, new = ledger_of(catalog), {}
    for trial, (measurement, key) in paper.trials.items():
        path = measurement.path
        if trial not in paper.searches.found and path.is_file() and not ledger.fault(path):
            new[trial] = float(require_record(path).outcome["values"][key])
    if new:
        add_found(paper.searched_path, catalog.scale.name, new)
    return len(new)


def targets_of(paper: Paper, due: Sequence[Trial]) -> list[str]:
    """What snakemake is asked for: the table, or where other trials are only noted, their records.

    A trial whose score is in ``searched.csv`` and that was made elsewhere is not repeated.
    """
    records = {trial: score.measurement.path for trial, score in paper.trials.items()}
    noted = [path for trial, path in records.items() if trial not in due]
    if paper.search and all(path.is_file() for path in noted):
        return [paper.search.target]
    return list(dict.fromkeys(str(records[trial]) for trial in due))
