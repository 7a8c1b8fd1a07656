"""``python -m vitrine.artifacts``: render a table or a figure, or write a scale's report."""

from __future__ import annotations

import argparse
from pathlib import Path

from vitrine.artifacts.comparison import compare, read_measurement
from vitrine.artifacts.report import report
from vitrine.artifacts.tables import latex, markdown
from vitrine.errors import VitrineError, exit_on_error
from vitrine.files import write_atomically
from vitrine.plan.catalog import Artifact, Catalog, load_catalog
from vitrine.plan.source import import_function


def main() -> None:
    """Parse the command line and do one of the two."""
    parser = argparse.ArgumentParser(prog="python -m vitrine.artifacts", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("render", help="one table (.csv .md .tex) or figure (.csv .svg .png)")
    one.add_argument("paper")
    one.add_argument("artifact")
    page = commands.add_parser("report", help="the page that links every artifact")
    for command in (one, page):
        command.add_argument("--scale", required=True)
        command.add_argument("--runs", default="runs", help="folder of the runs")
        command.add_argument("--results", default="results", help="folder of the results")
        command.add_argument("--root", type=Path, default=Path(), help="the project's root")
    args = parser.parse_args()

    catalog = load_catalog(
        args.root, scale=args.scale, runs_root=args.runs, results_root=args.results
    )
    if args.command == "render":
        render(catalog, catalog.artifact(args.paper, args.artifact))
    else:
        write_atomically(catalog.report, report(catalog))


def render(catalog: Catalog, artifact: Artifact, folder: Path | None = None) -> tuple[Path, ...]:
    """Write an artifact's files, the tidy CSV always among them, and return their paths.

    They go to `folder`, or to the results of the scale.

    Raises:
        VitrineError: a figure's measurement is missing, a cell's key is unknown, or the results
            folder cannot be written to.
    """
    measured = {
        measurement.path: values
        for measurement in artifact.measurements
        if (values := read_measurement(measurement.path)) is not None
    }
    cells = compare(artifact, measured, catalog.scale.name)
    usual = catalog.files(artifact)
    csv, *_ = paths = [folder / file.name for file in usual] if folder else usual
    if artifact.draw is None:
        texts = (markdown(artifact, cells), latex(artifact, cells))
        for path, text in zip(paths[1:], texts, strict=True):
            write_atomically(path, text)
    else:
        from vitrine.artifacts import style  # matplotlib only where something is drawn

        if missing := [one.path for one in artifact.measurements if one.path not in measured]:
            raise VitrineError(
                f"{artifact.paper} {artifact.name} needs {missing[0]}; "
                f"run snakemake {artifact.paper}_{artifact.name}"
            )
        draw = import_function(artifact.draw, "artifacts.yaml")
        style.save(draw(cells, list(measured.values())), csv.with_suffix(""))
    write_atomically(csv, cells.to_csv(index=False, lineterminator="\n"))
    return tuple(paths)


if __name__ == "__main__":
    exit_on_error(main)
