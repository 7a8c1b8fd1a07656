"""The steps of the graph, hidden commands: what the rules of Snakemake call, and anyone may repeat.

A job needs nothing but its file, and a training that was cut off goes on from its checkpoint.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replication import fork_server
from replication.commands.options import Results, Runs, Scale, open_catalog
from vitrail.commands.app import command
from vitrail.errors import VitrailError, exit_on_error
from vitrail.files import write_atomically

if TYPE_CHECKING:
    from replication.plan.jobs import MeasurementJob, TrainingJob


@command(hidden=True)
def run(
    job: Annotated[
        Path,
        typer.Argument(
            metavar="JOB", help="The job's file: runs/PAPER/RECIPE-HASH/jobs/SCALE/NAME.json."
        ),
    ],
) -> None:
    """Train the seeds of a job in turn, or take its measurement.

    A training writes the job's receipt when all seeds are trained, a measurement its numbers.

    \b
    vitrail run runs/shift/cvt_13-cifar10-circular-0a1b2c3d/jobs/laptop/trained-0-1-2.json
    """
    from replication.plan.jobs import TrainingJob, read_job

    wanted = read_job(job)
    require_same_config(wanted)
    if isinstance(wanted, TrainingJob):
        from replication.engine.engine import engine_of, one_run
        from replication.engine.model import write_receipt
        from vitrail.images.loading import Views

        engine = engine_of(wanted.recipe)
        views: Views = {}
        weights = {seed: engine.train(one_run(wanted, seed, views)) for seed in wanted.seeds}
        if int(os.environ.get("RANK", "0")) == 0:
            write_receipt(wanted, weights)
    else:
        from replication.taking import take

        write_atomically(wanted.output, json.dumps(take(wanted), indent=1) + "\n")


def require_same_config(job: TrainingJob | MeasurementJob) -> None:
    """Raise a `VitrailError` if a segmenter's configuration file was changed since the planning."""
    from replication.plan.recipe import SegmentationRecipe
    from replication.plan.source import config_digest, config_path

    if isinstance(job.recipe, SegmentationRecipe):
        model = job.recipe.model
        if config_digest(model.name, Path()) != model.sha256:
            raise VitrailError(
                f"{config_path(model.name)} was changed since {job.path} was planned; restore it, "
                "or start snakemake again"
            )


@command(hidden=True)
def fetch(
    name: Annotated[
        str, typer.Argument(metavar="DATASET", help="The dataset, as the registry names it.")
    ],
    data: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the datasets.")] = Path(
        "data"
    ),
    receipt: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write this JSON file when the dataset is verified."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Verify only, download nothing.")] = False,
    registry: Annotated[
        Path, typer.Option(metavar="FILE", help="The registry of datasets.")
    ] = Path("configs/datasets.yaml"),
) -> None:
    """Fetch a dataset and verify it.

    \b
    vitrail fetch cifar10
    vitrail fetch imagenet --data /datasets --check
    """
    from replication.data.fetching import fetch as get
    from replication.data.layout import verify
    from replication.plan.datasets import find, load_registry

    info = find(name, load_registry(registry))
    images = (verify if check else get)(info, data)
    print(f"{info.title}: {images['train']} training and {images['val']} validation images")
    if receipt:
        told = {"dataset": info.name, "version": info.version}
        told |= {"verified": ["layout", "counts"], "images": images}
        write_atomically(receipt, json.dumps(told, indent=2) + "\n")


@command(hidden=True)
def fetch_weights(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="The weights, as the registry names them: timm's name with its tag.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", show_default="NAME.safetensors", help="File to write."),
    ] = None,
    registry: Annotated[
        Path, typer.Option(metavar="FILE", help="The registry of published weights.")
    ] = Path("configs/weights.yaml"),
) -> None:
    """Fetch published weights, or check those placed by hand.

    \b
    vitrail fetch-weights deit_small_patch16_224.fb_in1k
    """
    from replication.engine.weights import fetch as get
    from replication.plan.weights import find_weights, load_weights_registry

    weights = find_weights(name, load_weights_registry(registry), registry)
    output = output or Path(f"{weights.name}.safetensors")
    get(weights, output)
    told = "its digest is that of the registry" if weights.pinned else "not pinned: digest noted"
    print(f"{output}: {told}")


@command(hidden=True)
def render(
    paper: Annotated[str, typer.Argument(metavar="PAPER", help="The paper, such as shift.")],
    artifact: Annotated[
        str, typer.Argument(metavar="ARTIFACT", help="The table or figure, such as table1.")
    ],
    scale: Scale = None,
    runs: Runs = None,
    results: Results = None,
) -> None:
    """Render a table (.csv .md .tex) or a figure (.csv .svg .png).

    \b
    vitrail render shift table1 --scale laptop
    """
    from replication.evidence import tables

    catalog = open_catalog(scale, runs, results)
    tables.render(catalog, catalog.artifact(paper, artifact))


@command(hidden=True)
def report(scale: Scale = None, runs: Runs = None, results: Results = None) -> None:
    """Write the page that links every table and figure of a scale.

    \b
    vitrail report --scale laptop
    """
    from replication.evidence.page import page
    from replication.evidence.report import report, results_of

    catalog = open_catalog(scale, runs, results)
    made = results_of(catalog)
    write_atomically(catalog.report, report(made))
    write_atomically(catalog.report.with_suffix(".html"), page(made))


@command(hidden=True)
def serve(
    listener: Annotated[
        int, typer.Argument(metavar="SOCKET", help="File descriptor of the listening socket.")
    ],
) -> None:
    """Run commands in children of this process, which imports everything once.

    \b
    vitrail serve 3
    """
    from vitrail.__main__ import run as run_command

    fork_server.serve(socket.socket(fileno=listener), lambda: exit_on_error(run_command))
