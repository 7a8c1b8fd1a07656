"""``vitrail mmseg``: MMSegmentation's own tools, which know our models."""

from __future__ import annotations

from typing import Annotated

import typer

from vitrail.commands.app import command


# All arguments after the tool's name are passed to the tool, also -h and --help.
@command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def mmseg(
    tool: Annotated[
        str,
        typer.Argument(
            metavar="TOOL", help="train, test, infer, or another script of mmseg's tools/."
        ),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGUMENTS", help="Arguments of the tool; its -h lists them."),
    ] = None,
) -> None:
    """Run one of MMSegmentation's tools with the papers' models.

    \b
    vitrail mmseg train configs/segmentation/a_swin_t_upernet_ade20k.py
    vitrail mmseg test runs/shift/RUN/seed0/config.py runs/shift/RUN/seed0/mmseg.pth --tta
    vitrail mmseg infer runs/shift/RUN/seed0/config.py runs/shift/RUN/seed0/mmseg.pth photo.jpg
    """
    from vitrail.segmentation.tools import run_tool

    run_tool(tool, arguments or [])
