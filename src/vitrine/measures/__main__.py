"""``python -m vitrine.measures JOB``: take one measurement and write its JSON."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from vitrine.errors import exit_on_error
from vitrine.files import write_atomically
from vitrine.measures.taking import take
from vitrine.plan.jobs import MeasurementJob, read_job


def main() -> None:
    """Measure every seed, then write all of it at once."""
    parser = argparse.ArgumentParser(prog="python -m vitrine.measures", description=__doc__)
    parser.add_argument("job", type=Path, help="its file, runs/PAPER/.../jobs/SCALE/NAME.json")
    job = read_job(MeasurementJob, parser.parse_args().job)
    write_atomically(job.output, json.dumps(take(job), indent=1) + "\n")


if __name__ == "__main__":
    exit_on_error(main)
