"""``python -m vitrine.training JOB``: train some seeds of one recipe, in turn, or resume them."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from vitrine.errors import exit_on_error
from vitrine.plan.jobs import TrainingJob, read_job
from vitrine.plan.recipe import AnyRecipe
from vitrine.training.engine import Job, engine_of
from vitrine.training.model import starting_weights, write_receipt


def main() -> None:
    """Train, then write the receipt that the graph waits for."""
    parser = argparse.ArgumentParser(prog="python -m vitrine.training", description=__doc__)
    parser.add_argument("job", type=Path, help="its file, runs/PAPER/.../jobs/SCALE/NAME.json")
    job = read_job(TrainingJob, parser.parse_args().job)
    engine = engine_of(job.recipe)
    weights = {seed: engine.train(_one_run(job, seed)) for seed in job.seeds}
    if int(os.environ.get("RANK", "0")) == 0:
        write_receipt(job, weights)


def _one_run(job: TrainingJob, seed: int) -> Job[AnyRecipe]:
    """The run of one seed."""
    return Job(
        recipe=job.recipe,
        seed=seed,
        folder=job.folder / f"seed{seed}",
        dataset=job.dataset,
        data_root=job.data_root,
        device=job.device,
        workers=job.workers,
        checkpoint_seconds=job.checkpoint_seconds,
        initial=job.published or (starting_weights(job.start, seed) if job.start else None),
        retrain=job.retrain,
    )


if __name__ == "__main__":
    exit_on_error(main)
