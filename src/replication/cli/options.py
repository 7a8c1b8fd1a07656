"""Arguments and options of several commands, and the catalogue that they choose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from vitrail.errors import VitrailError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replication.plan.catalog import Catalog
    from replication.records.specs import Artifact

SETTING = "as in configs/default.yaml"
TARGETS = "Tables or figures (variance_table5), papers (variance), or all."
SCALE = "A scale of configs/scales/: laptop, small, workstation, full"

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


def artifacts_of(catalog: Catalog, targets: Iterable[str]) -> list[Artifact]:
    """The tables and figures of some targets, each once.

    Raises:
        VitrailError: there is no such target, or none of them has any at this scale.
    """
    named = [artifact for target in targets for artifact in catalog.target(target).artifacts]
    artifacts = list({(artifact.paper, artifact.name): artifact for artifact in named}.values())
    if not artifacts:
        raise VitrailError(
            f"{', '.join(targets)} has no table or figure at scale '{catalog.scale.name}'; choose "
            "another target or another --scale"
        )
    return artifacts
