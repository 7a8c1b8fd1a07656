"""``python -m vitrine.measures``: take one measurement and write its JSON."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from vitrine.errors import VitrineError, exit_on_error
from vitrine.files import write_atomically
from vitrine.measures.taking import take
from vitrine.plan.catalog import load_catalog


def main() -> None:
    """Measure every seed, then write all of it at once."""
    parser = argparse.ArgumentParser(prog="python -m vitrine.measures", description=__doc__)
    parser.add_argument("paper")
    parser.add_argument("measure", help="a measure's name in the paper's artifacts.yaml")
    parser.add_argument("--recipe", help="what it is taken on, if it is on something")
    parser.add_argument("--scale", required=True)
    parser.add_argument("--output", type=Path, help="the JSON; by default where the graph puts it")
    parser.add_argument("--data", default="data", help="folder of the datasets")
    parser.add_argument("--runs", default="runs", help="folder of the runs")
    args = parser.parse_args()

    catalog = load_catalog(scale=args.scale, data_root=args.data, runs_root=args.runs)
    measurement = catalog.paper(args.paper).measurement(args.measure, args.recipe)
    if args.output is not None and args.output != measurement.path:
        raise VitrineError(
            f"'{args.measure}' belongs in {measurement.path}, not in {args.output}: it was changed "
            "after this job was planned; start snakemake again"
        )
    write_atomically(measurement.path, json.dumps(take(measurement, catalog), indent=1) + "\n")


if __name__ == "__main__":
    exit_on_error(main)
