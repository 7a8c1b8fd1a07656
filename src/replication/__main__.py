"""``python -m vitrail COMMAND``: the steps that the graph is made of, and that anyone may repeat.

    run JOB                  train some seeds of a recipe, or measure: what the job's file says
    fetch DATASET            fetch and verify a dataset, and leave a receipt
    fetch-weights NAME       fetch published weights, or check those placed by hand
    render PAPER ARTIFACT    render a table (.csv .md .tex) or a figure (.csv .svg .png)
    report                   write the page that links every artifact of a scale
    serve SOCKET             run such commands in children of a process that has all imported

A job needs nothing but its file, and a training that was cut off goes on from its checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from replication import fork_server
from vitrail.errors import VitrailError, exit_on_error, needs_package
from vitrail.files import write_atomically

if TYPE_CHECKING:
    from replication.plan.catalog import Catalog
    from replication.plan.jobs import MeasurementJob, TrainingJob


def main() -> None:
    """Parse the command line and do what it says."""
    parser = argparse.ArgumentParser(
        prog="python -m vitrail",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True)

    one = commands.add_parser("run")
    one.add_argument("job", type=Path, help="its file, runs/PAPER/.../jobs/SCALE/NAME.json")
    one.set_defaults(step=run)

    one = commands.add_parser("fetch")
    one.add_argument("name", help="the dataset, as in the registry")
    one.add_argument("--data", type=Path, default=Path("data"), help="the data root")
    one.add_argument("--receipt", type=Path, help="JSON file to write when all is well")
    one.add_argument("--check", action="store_true", help="verify only, download nothing")
    one.add_argument("--registry", type=Path, default=Path("configs/datasets.yaml"))
    one.set_defaults(step=fetch)

    one = commands.add_parser("fetch-weights")
    one.add_argument("name", help="in the registry, such as deit_small_patch16_224.fb_in1k")
    one.add_argument("--output", type=Path, help="the safetensors file; default: <name> here")
    one.add_argument("--registry", type=Path, default=Path("configs/weights.yaml"))
    one.set_defaults(step=fetch_weights)

    at_scale = argparse.ArgumentParser(add_help=False)
    at_scale.add_argument("--scale", required=True)
    at_scale.add_argument("--runs", default="runs", help="folder of the runs")
    at_scale.add_argument("--results", default="results", help="folder of the results")
    at_scale.add_argument("--root", type=Path, default=Path(), help="the project's root")
    one = commands.add_parser("render", parents=[at_scale])
    one.add_argument("paper")
    one.add_argument("artifact")
    one.set_defaults(step=render)
    commands.add_parser("report", parents=[at_scale]).set_defaults(step=write_report)

    one = commands.add_parser("serve")
    one.add_argument("listener", type=int, help="the socket's file descriptor")
    one.set_defaults(step=serve)

    arguments = parser.parse_args()
    arguments.step(arguments)


# Each step imports what it needs: torch and the catalogue take longer to import than some run.


def run(given: argparse.Namespace) -> None:
    """Train the seeds of a job in turn and write its receipt, or measure and write all at once."""
    from replication.plan.jobs import TrainingJob, read_job

    job = read_job(given.job)
    require_same_config(job)
    if isinstance(job, TrainingJob):
        from replication.engine.engine import engine_of
        from replication.engine.model import run_of_seed, write_receipt
        from vitrail.images.loading import Views

        engine = engine_of(job.recipe)
        views: Views = {}
        weights = {seed: engine.train(run_of_seed(job, seed, views)) for seed in job.seeds}
        if int(os.environ.get("RANK", "0")) == 0:
            write_receipt(job, weights)
    else:
        from replication.taking import take

        write_atomically(job.output, json.dumps(take(job), indent=1) + "\n")


def require_same_config(job: TrainingJob | MeasurementJob) -> None:
    """Raise a `VitrailError` if a file that the recipe names was changed since the planning."""
    if job.recipe and (changed := job.recipe.changed_file(Path())):
        raise VitrailError(
            f"{changed} was changed since {job.path} was planned; restore it, or start snakemake "
            "again"
        )


def fetch(given: argparse.Namespace) -> None:
    """Fetch or check a dataset, and write its receipt."""
    from replication.data.fetching import fetch as get
    from replication.data.layout import verify
    from replication.plan.datasets import find, load_registry

    info = find(given.name, load_registry(given.registry))
    images = (verify if given.check else get)(info, given.data)
    print(f"{info.title}: {images['train']} training and {images['val']} validation images")
    if given.receipt:
        receipt = {"dataset": info.name, "version": info.version}
        receipt |= {"verified": ["layout", "counts"], "images": images}
        write_atomically(given.receipt, json.dumps(receipt, indent=2) + "\n")


def fetch_weights(given: argparse.Namespace) -> None:
    """Fetch published weights, or check those that are there."""
    from replication.engine.weights import fetch
    from replication.plan.weights import find_weights, load_weights_registry

    weights = find_weights(given.name, load_weights_registry(given.registry), given.registry)
    output = given.output or Path(f"{weights.name}.safetensors")
    fetch(weights, output)
    told = "its digest is that of the registry" if weights.pinned else "not pinned: digest noted"
    print(f"{output}: {told}")


def render(given: argparse.Namespace) -> None:
    """Render a table or a figure."""
    from replication.evidence import tables

    catalog = _catalog(given)
    tables.render(catalog, catalog.artifact(given.paper, given.artifact))


def write_report(given: argparse.Namespace) -> None:
    """Write the report of a scale."""
    from replication.evidence.page import page
    from replication.evidence.report import report, results_of

    catalog = _catalog(given)
    results = results_of(catalog)
    write_atomically(catalog.report, report(results))
    write_atomically(catalog.report.with_suffix(".html"), page(results))


def serve(given: argparse.Namespace) -> None:
    """Run commands as children of this process."""
    fork_server.serve(socket.socket(fileno=given.listener), lambda: exit_on_error(main))


def vitrail() -> None:
    """Run what the console script is: `replication.cli`, or a sentence on the package it lacks."""
    try:
        from replication.cli import app
    except ModuleNotFoundError as error:
        print(f"vitrail: {needs_package(error.name or 'typer')}", file=sys.stderr)
        raise SystemExit(2) from None
    app()


def _catalog(given: argparse.Namespace) -> Catalog:
    from replication.plan.catalog import load_catalog

    return load_catalog(
        given.root, scale=given.scale, runs_root=given.runs, results_root=given.results
    )


def run_as_module() -> None:
    """Run a step of the graph, in a child of the fork server where there is one."""
    fork_server.hand_over()
    exit_on_error(main)
