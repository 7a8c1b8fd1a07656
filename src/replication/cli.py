"""``vitrail``: what people ask before, during and after ``snakemake``.

Snakemake makes things; this command tells what a target will cost, what is missing, what stands
behind a number, and whether results agree with the published ones. A command's module is imported
when it runs, so that help and the light commands start without torch.
"""
# Typer keeps the lines of an example after a real backspace, which a raw docstring cannot hold.
# ruff: noqa: D301

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from vitrail.errors import VitrailError, needs_package, sentence

if TYPE_CHECKING:
    from replication.plan.catalog import Catalog


class _Commands(TyperGroup):
    """Tells a `VitrailError`, or which package is missing, in one line and exits with status 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except VitrailError as error:
            told = sentence(error)
        except ModuleNotFoundError as error:
            if not error.name or error.name.split(".")[0] == "vitrail":
                raise
            told = needs_package(error.name)
        print(f"vitrail: {told}", file=sys.stderr)
        raise typer.Exit(2) from None


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Run it from the project's root, where configs/ lies.",
)

Target = Annotated[
    str, typer.Argument(help="An artifact, a paper or a collection: variance_table5, variance, all")
]
Targets = Annotated[
    list[str],
    typer.Argument(help="Artifacts, papers or collections: variance_table5, variance, all"),
]
Scale = Annotated[
    str | None,
    typer.Option(
        help="laptop, workstation, full, ... (configs/scales/); else as configs/default.yaml says"
    ),
]
Data = Annotated[str | None, typer.Option(help="Folder of the datasets")]
Runs = Annotated[str | None, typer.Option(help="Folder of the runs")]
Results = Annotated[str | None, typer.Option(help="Folder of the results")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs")]
Images = Annotated[Path, typer.Option(help="Folder of images, of folders of classes if labelled")]
Pretrained = Annotated[bool, typer.Option(help="Published weights, or random ones")]
Weights = Annotated[
    Path | None, typer.Option(help="Weights of your own, in their place: a file of timm's")
]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; by default cuda where there is one")]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"vitrail {version('vitrail')}")
        raise typer.Exit


@app.callback()
def vitrail(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version")
    ] = False,
) -> None:
    """Four Vision Transformer papers, replicated: plan, check and inspect.

    'snakemake TARGET' makes a target; these commands tell about it.
    """


@app.command()
def plan(
    targets: Targets,
    as_json: Json = False,
    scale: Scale = None,
    device: Annotated[
        str | None, typer.Option(help="Kind of device to reckon with: a100, h100, h200 or cpu")
    ] = None,
    data: Data = None,
    runs: Runs = None,
    results: Results = None,
) -> None:
    """Tell what targets take before anything is launched: jobs, GPU hours, disk, data.

    \b
    vitrail plan variance_table5 --scale full
    vitrail plan octic_published variance_table3 --scale full
    vitrail plan all --scale full --device h200
    """
    from replication.commands.plan import plan as command

    command(_catalog(scale, data, runs, results), targets, device, as_json)


@app.command()
def doctor(
    as_json: Json = False,
    scale: Scale = None,
    data: Data = None,
    runs: Runs = None,
    results: Results = None,
) -> None:
    """Tell whether software, devices, disk and data are there, and what to do where not.

    Exits with status 1 when something that the scale needs is missing.

    \b
    vitrail doctor
    vitrail doctor --scale full --data /datasets
    """
    from replication.commands.doctor import doctor as command

    raise typer.Exit(not command(_catalog(scale, data, runs, results), as_json))


@app.command()
def show(
    target: Annotated[
        str | None, typer.Argument(help="As of the other commands; not needed with --recipe")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Print this recipe, NAME or PAPER/NAME, as YAML instead")
    ] = None,
    why: Annotated[
        bool, typer.Option("--why", help="Beside each value of the recipe, name what set it")
    ] = False,
    as_json: Json = False,
    scale: Scale = None,
    runs: Runs = None,
    results: Results = None,
) -> None:
    """Show each cell of a target: run, measure, measured and printed value, and its place.

    \b
    vitrail show variance_table5
    vitrail show variance_table5 --scale full --json
    vitrail show --recipe variance/vit_s-mixup0.0-cutmix1.0 --why
    """
    from replication.commands.show import show as command

    command(_catalog(scale, None, runs, results), target, recipe, why, as_json)


@app.command()
def status(
    as_json: Json = False, scale: Scale = None, runs: Runs = None, results: Results = None
) -> None:
    """Tell what is done at a scale, where it lies, and which claims held.

    \b
    vitrail status
    vitrail status --scale smoke
    """
    from replication.commands.status import status as command

    command(_catalog(scale, None, runs, results), as_json)


@app.command()
def verify(
    as_json: Json = False, scale: Scale = None, runs: Runs = None, results: Results = None
) -> None:
    """Compare your results with the published ones, cell by cell, claim by claim.

    Exits with status 1 when cells are missing, altered, or differ by more than their spread over
    seeds explains, and when a claim that held as published fails.

    \b
    vitrail verify
    vitrail verify --scale gpu
    """
    from replication.commands.verify import verify as command

    raise typer.Exit(not command(_catalog(scale, None, runs, results), as_json))


@app.command()
def publish(
    scale: Scale = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete what is published and not built here")
    ] = False,
    runs: Runs = None,
    results: Results = None,
) -> None:
    """Copy results to results/published/, if all that they hang on is as it says.

    What is rendered is compared with its measurements, these with their weights and code.

    \b
    vitrail publish --scale laptop
    """
    from replication.commands.publish import publish as command

    command(_catalog(scale, None, runs, results), prune)


@app.command(context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]})
def mmseg(
    tool: Annotated[str, typer.Argument(help="train, test, infer, or another of mmseg's tools/")],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="The tool's own; -h lists them")
    ] = None,
) -> None:
    """Run one of MMSegmentation's own tools with our models and configurations.

    \b
    vitrail mmseg train configs/segmentation/a_swin_t_upernet_ade20k.py
    vitrail mmseg test runs/RUN/seed0/config.py runs/RUN/seed0/mmseg.pth --tta
    vitrail mmseg infer runs/RUN/seed0/config.py runs/RUN/seed0/mmseg.pth photo.jpg --out seen
    """
    from vitrail.segmentation.tools import run_tool

    run_tool(tool, arguments or [])


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="Folder of a run: runs/PAPER/RECIPE-HASH")],
    to: Annotated[Path | None, typer.Option(help="A new folder")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Which seed of the run")] = 0,
    push: Annotated[str | None, typer.Option(help="hf-hub:USER/NAME, if you are logged in")] = None,
) -> None:
    """Write a trained model as others take it: timm's layout of hubs, or MMSegmentation's.

    \b
    vitrail export runs/octic/h8-l-0a1b2c3d --to h8-l
    vitrail export runs/octic/h8-l-0a1b2c3d --push hf-hub:me/h8-l
    """
    from replication.commands.export import export as command

    command(run, to, seed, push)


@app.command()
def curves(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs: runs/PAPER/RECIPE-HASH")],
) -> None:
    """Draw how runs were trained: loss, learning rate and validation by epoch, each seed a line.

    Each run's folder gets curves.svg, .png and .csv. It may still be training.

    \b
    vitrail curves runs/octic/h8-l-0a1b2c3d
    vitrail curves runs/shift/*
    """
    from replication.commands.curves import curves as command

    for run in runs:
        command(run)


@app.command()
def pshap(
    model: Annotated[
        str, typer.Option(help="timm's name of a ViT, hf-hub:OWNER/NAME or local-dir:FOLDER")
    ],
    data: Images,
    pretrained: Pretrained = True,
    checkpoint: Weights = None,
    images: Annotated[
        int | None, typer.Option(min=2, help="How many, spread evenly; by default all")
    ] = None,
    permutations: Annotated[int, typer.Option(min=1, help="Of each image's positions")] = 16,
    batch_size: Annotated[int, typer.Option(min=1, help="Images at a time")] = 64,
    seed: Annotated[
        int, typer.Option(min=0, help="Of the permutations, and of random weights")
    ] = 0,
    device: Device = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes that read the images")] = 0,
    resume: Annotated[
        Path | None, typer.Option(help="File that keeps what is done until all is")
    ] = None,
) -> None:
    """Measure how much of a model's predictions is owed to position: its P-SHAP, 0 to 1.

    Additive and rotary position embeddings; an image takes 1 forward pass and 1 a permutation.

    \b
    vitrail pshap --model vit_tiny_patch16_224 --data data/imagenette2-320/val
    vitrail pshap --model vit_small_patch16_rope_224 --data photos --images 500
    """
    from vitrail.commands.pshap import pshap as command

    where = (seed, device, workers, resume)
    command(model, data, pretrained, checkpoint, images, permutations, batch_size, *where)


@app.command()
def audit(
    model: Annotated[
        str, typer.Argument(help="timm's name, hf-hub:OWNER/NAME or local-dir:FOLDER")
    ],
    data: Images,
    pretrained: Pretrained = True,
    checkpoint: Weights = None,
    images: Annotated[int, typer.Option(min=2, help="How many at most, spread evenly")] = 50,
    size: Annotated[
        list[int] | None,
        typer.Option(min=1, help="A test size in pixels; by default 1.25, 1.5 and 2 times its own"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder of the results; by default audit-MODEL")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn, random weights too")] = 0,
    device: Device = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes that read the images")] = 0,
) -> None:
    """Put a model to the papers' tests on a folder of images: one page of plots, and a CSV.

    Accuracy, circular and standard shifts, turns and mirrors, P-SHAP, and larger test sizes.
    What is measured is kept: the same command goes on where it was stopped.

    \b
    vitrail audit vit_tiny_patch16_224 --data photos
    vitrail audit a_swin_tiny_patch4_window7_224 --data photos --no-pretrained
    vitrail audit resnet50 --data imagenet/val --images 50000 --workers 8
    """
    from vitrail.commands.audit import audit as command

    what = (model, data, pretrained, checkpoint)
    command(*what, images, size or (), output, seed, device, workers)


def _catalog(scale: str | None, *roots: str | None) -> Catalog:
    """The catalogue of the working directory; `roots` are of data, runs and results, if given."""
    from replication.plan.catalog import load_catalog

    named = zip(("scale", "data_root", "runs_root", "results_root"), (scale, *roots), strict=False)
    given: dict[str, Any] = {name: value for name, value in named if value is not None}
    return load_catalog(**given)
