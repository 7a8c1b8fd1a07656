"""``python -m vitrine.artifacts``: render a table or a figure, or write a scale's report."""

from __future__ import annotations

import argparse
from pathlib import Path

from vitrine.artifacts.report import report
from vitrine.artifacts.tables import render
from vitrine.errors import exit_on_error
from vitrine.files import write_atomically
from vitrine.plan.catalog import load_catalog


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


if __name__ == "__main__":
    exit_on_error(main)
