"""The command line application, to which each command adds itself, and shared options."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

WIDTH = 100  # largest number of columns of a help text

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH},
)
command = app.command

Images = Annotated[
    Path,
    typer.Option(
        metavar="FOLDER",
        help="Folder of images. Subfolders named after the model's classes label them.",
    ),
]
Pretrained = Annotated[
    bool, typer.Option(help="Load the model's published weights, or initialise it randomly.")
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Load the weights from this file (.safetensors or .pth, with timm's names of "
        "parameters) instead of the published ones.",
    ),
]
ClassMap = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        show_default="the label_names of the model, else timm's order of the folders' names",
        help="Text file of the model's classes: a folder's name a line, in the order of the "
        "logits.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="N",
        help="Seed of everything that is drawn at random, also of the weights with "
        "--no-pretrained.",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="cpu|cuda", help="Device that computes.", show_default="cuda where there is one"
    ),
]
Workers = Annotated[
    int,
    typer.Option(
        min=0, metavar="N", help="Number of processes that read images; 0 reads in the main one."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"vitrail {version('vitrail')}")
        raise typer.Exit


@app.callback()
def vitrail(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Measure Vision Transformers, and replicate the tables and figures of four papers.

    audit, pshap and mmseg are about one model. The other commands are about the replication: they
    are there in a checkout, and run in its root, where configs/ lies. 'snakemake TARGET' makes a
    table or a figure; they tell what it costs, what is missing, and what is behind its numbers.
    """
