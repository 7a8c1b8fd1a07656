"""The steps of the graph: what the rules of Snakemake call, and anyone may repeat.

They are hidden commands, except for `fetch`, which is also useful without a target.
A command needs nothing but its node, and a training that was cut off goes on from its checkpoint.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from replication.cli.options import Data
from replication.jobs import fork_server
from vitrail.commands.app import command
from vitrail.errors import VitrailError, exit_on_error
from vitrail.files import sha256, write_atomically

if TYPE_CHECKING:
    from replication.records.nodes import AnyNode, TrainingNode


@command(hidden=True)
def run(
    node: Annotated[
        Path,
        typer.Argument(
            metavar="NODE", help="The node's file: runs/PAPER/RECIPE-HASH/nodes/SCALE/NAME.json."
        ),
    ],
) -> None:
    """Do what a node says (train, measure, render or report), and write its record.

    It exits with 2 for what the user can put right, with 69 where this machine lacks what it needs
    (a CUDA device, a disk that answers), with 75 while another process trains the same run.

    \b
    vitrail run runs/shift/cvt_13-cifar10-circular-0a1b2c3d/nodes/laptop/trained-seed0.json
    """
    from replication.cluster.failures import explained
    from replication.records.nodes import read_node
    from replication.records.records import complete

    with explained():
        wanted = read_node(node)
    with explained(wanted):
        outcome = work(wanted)
        if os.environ.get("RANK", "0") == "0":
            complete(wanted, outcome)


def work(node: AnyNode) -> dict[str, Any]:
    """Do what a node says; return its outcome."""
    from replication.records.nodes import MeasurementNode, RenderingNode, TrainingNode

    if isinstance(node, TrainingNode):
        return train(node)
    if isinstance(node, MeasurementNode):
        from replication.jobs.measure import take

        return take(node)
    if isinstance(node, RenderingNode):
        from replication.report.tables import read_measured, render

        measured = read_measured(node.artifact)
        files = render(node.artifact, node.output.parent, measured)
        return {
            "inputs": {str(path): values["sha256"] for path, values in measured.items()},
            "outputs": {file.name: sha256(file) for file in files},
        }
    from replication.plan.catalog import load_catalog
    from replication.report.html_report import write_report

    settings: Any = dict(setting.split("=", 1) for setting in node.config)
    write_report(node, load_catalog(**settings).said)
    return {"outputs": {file.name: sha256(file) for file in node.files}}


def train(node: TrainingNode) -> dict[str, Any]:
    """Train the run of a node; return its outcome."""
    from replication.images.opening import opened_once
    from replication.jobs.run_weights import training_of
    from replication.training.dispatch import engine_of
    from replication.training.run_folder import read_finished

    with opened_once():
        weights = engine_of(node.run.recipe).train(training_of(node))
    return {"sha256": sha256(weights), "facts": read_finished(weights.parent)}


@command()
def fetch(
    name: Annotated[
        str, typer.Argument(metavar="DATASET", help="The dataset, as the registry names it.")
    ],
    data: Data = None,
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

    Verified are its files, the number of its images, and their digest if it is known.

    \b
    vitrail fetch cifar10
    vitrail fetch imagenet --data /datasets --check
    """
    from replication.config.datasets import find, load_registry
    from replication.config.settings import load_settings
    from replication.datasets.digest import check_digest
    from replication.datasets.fetch import fetch as get
    from replication.datasets.verify import verify

    info = find(name, load_registry(registry))
    root = Path(data or load_settings(Path()).data_root)
    images = (verify if check else get)(info, root)
    check_digest(info, root)
    known = {"digest": info.digest} if info.digest else {}
    counted = f"{images['train']} training and {images['val']} validation images"
    print(f"{info.title}: {counted}{'; their digest is that of the registry' if known else ''}")
    if receipt:
        told = {"dataset": info.name, "version": info.version}
        told |= {"verified": ["layout", "counts", *known], "images": images, **known}
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
    from replication.config.weights import find_weights, load_weights_registry
    from replication.datasets.published_weights import fetch as get

    weights = find_weights(name, load_weights_registry(registry), registry)
    output = output or Path(f"{weights.name}.safetensors")
    get(weights, output)
    told = "its digest is that of the registry" if weights.pinned else "not pinned: digest noted"
    print(f"{output}: {told}")


@command(hidden=True)
def address() -> None:
    """Print the address to which the other nodes of a training connect.

    The command in the environment variable VITRAIL_ADDRESS prints it; without one, `hostname`.

    \b
    VITRAIL_ADDRESS='hostname --fqdn' vitrail address
    """
    from replication.cluster.failures import explained

    asked = os.environ.get("VITRAIL_ADDRESS") or "hostname"
    with explained():
        done = subprocess.run(["bash", "-c", asked], stdout=subprocess.PIPE, text=True, check=False)
        printed = done.stdout.split()
        if done.returncode or len(printed) != 1:
            raise VitrailError(
                f"VITRAIL_ADDRESS is '{asked}', which must print one address here and printed "
                f"{' and '.join(printed) or 'nothing'} (exit status {done.returncode}); set it to "
                "a command such as 'hostname --fqdn'"
            )
    print(*printed)


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
