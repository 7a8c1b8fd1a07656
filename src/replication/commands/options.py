"""Arguments and options of several commands, and the catalogue that they choose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from replication.plan.catalog import Catalog

SETTING = "as in configs/default.yaml"
SCALE = "A scale of configs/scales/: smoke, laptop, workstation, full, ..."

Scale = Annotated[
    str | None,
    typer.Option(metavar="NAME", show_default=SETTING, help=SCALE),
]
Data = Annotated[
    str | None,
    typer.Option(metavar="FOLDER", show_default=SETTING, help="Folder of the datasets."),
]
Runs = Annotated[
    str | None, typer.Option(metavar="FOLDER", show_default=SETTING, help="Folder of the runs.")
]
Results = Annotated[
    str | None,
    typer.Option(metavar="FOLDER", show_default=SETTING, help="Folder of the results."),
]
PricedDevice = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        show_default="a100, or cpu at a scale that runs on CPUs",
        help="Estimate the hours on this device of configs/hardware.yaml: a100, h100, h200 or cpu.",
    ),
]


def open_catalog(
    scale: str | None,
    runs: str | None = None,
    results: str | None = None,
    data: str | None = None,
) -> Catalog:
    """Read the catalogue of the working directory; None takes what its configs/default.yaml says.

    Raises:
        VitrailError: this is no checkout, its configuration is wrong, or it has no such scale.
    """
    from replication.plan.catalog import load_catalog

    given = {"scale": scale, "runs_root": runs, "results_root": results, "data_root": data}
    overrides: Any = {name: value for name, value in given.items() if value is not None}
    return load_catalog(**overrides)
