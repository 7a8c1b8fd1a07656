"""``python -m vitrine.data NAME``: fetch and verify a dataset, and leave a receipt."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from vitrine.data import fetch, verify
from vitrine.errors import exit_on_error
from vitrine.files import write_atomically
from vitrine.plan.datasets import find, load_registry


def main() -> None:
    """Read the command line, fetch or check the dataset, write the receipt."""
    parser = argparse.ArgumentParser(prog="python -m vitrine.data", description=__doc__)
    parser.add_argument("name", help="the dataset, as in the registry")
    parser.add_argument("--data", type=Path, default=Path("data"), help="the data root")
    parser.add_argument("--receipt", type=Path, help="JSON file to write when all is well")
    parser.add_argument("--check", action="store_true", help="verify only, download nothing")
    registry = Path("configs/datasets.yaml")
    parser.add_argument("--registry", type=Path, default=registry, help="the registry")
    arguments = parser.parse_args()

    info = find(arguments.name, load_registry(arguments.registry))
    images = (verify if arguments.check else fetch)(info, arguments.data)
    print(f"{info.title}: {images['train']} training and {images['val']} validation images")
    if arguments.receipt:
        receipt = {
            "dataset": info.name,
            "version": info.version,
            "verified": ["layout", "counts"],
            "images": images,
        }
        write_atomically(arguments.receipt, json.dumps(receipt, indent=2) + "\n")


if __name__ == "__main__":
    exit_on_error(main)
