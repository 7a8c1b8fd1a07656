"""``python -m vitrine JOB``: do what a job's file says: train some seeds of a recipe, or measure.

The rules of the graph call it, and so may anyone: a job needs nothing but its file. A training that
was cut off goes on from its checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from vitrine.errors import VitrineError, exit_on_error
from vitrine.files import write_atomically
from vitrine.plan.jobs import MeasurementJob, TrainingJob, read_job
from vitrine.plan.recipe import SegmentationRecipe
from vitrine.plan.source import config_digest, config_path


def main() -> None:
    """Read the job, do it, and write its output."""
    parser = argparse.ArgumentParser(prog="python -m vitrine", description=__doc__)
    parser.add_argument("job", type=Path, help="its file, runs/PAPER/.../jobs/SCALE/NAME.json")
    job = read_job(parser.parse_args().job)
    require_same_config(job)
    if isinstance(job, TrainingJob):
        train(job)
    else:
        measure(job)


def require_same_config(job: TrainingJob | MeasurementJob) -> None:
    """Refuse a segmenter whose configuration, a file of its own, was changed since the planning.

    Raises:
        VitrineError: it was.
    """
    if isinstance(job.recipe, SegmentationRecipe):
        model = job.recipe.model
        if config_digest(model.name, Path()) != model.sha256:
            raise VitrineError(
                f"{config_path(model.name)} was changed since {job.path} was planned; restore it, "
                "or start snakemake again"
            )


def train(job: TrainingJob) -> None:
    """Train the seeds in turn, then write the receipt that the graph waits for."""
    from vitrine.training.engine import engine_of, one_run
    from vitrine.training.model import write_receipt

    engine = engine_of(job.recipe)
    weights = {seed: engine.train(one_run(job, seed)) for seed in job.seeds}
    if int(os.environ.get("RANK", "0")) == 0:
        write_receipt(job, weights)


def measure(job: MeasurementJob) -> None:
    """Measure every seed, then write all of it at once."""
    from vitrine.measures.taking import take

    write_atomically(job.output, json.dumps(take(job), indent=1) + "\n")


if __name__ == "__main__":
    exit_on_error(main)
