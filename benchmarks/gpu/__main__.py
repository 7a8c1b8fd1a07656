"""Make all measurements that need a GPU, in one run of at most eight minutes on a large GPU.

The measurements, the most important ones first:

- whether all families compute the same as on the CPU;
- whether circular shifts keep the logits, also for images with ties;
- whether the Triton kernel is right;
- how often a forward or backward pass waits for the GPU;
- whether a training that is killed and resumed ends in the same bits;
- memory, block times and throughput of octic Tables 1 and 2 and of shift Tables 3, 4 and A1;
- the speed of P-SHAP;
- in the time that is left, trainings on Flowers-102 by the recipes of `position`'s Table 2.

    make gpu-check ARGS="--output rows.csv"
    make gpu-check ARGS=--quick    # on a CPU, the smallest sizes, in a minute or two

It runs on the machine's own Python with torch, timm, triton, pandas, scipy, and scikit-learn for
its two photographs. It makes no environment, and needs no pydantic, Snakemake or MMSegmentation.
`tools.gpu_inputs` writes the archive of Flowers-102, on a machine that has these packages.

Each number is written to a row of the CSV as soon as it is known. The row has device, versions,
commit and time, the predicted number (``predictions.csv``, written before the first run), and
whether the number is inside the predicted range; with ``--quick`` nothing is compared. A step that
fails, hangs or runs out of memory has a row that says so. Rows are appended, and a training goes on
from its checkpoint in ``--runs``. The exit status is 1 if a step failed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.gpu import equality, kernel, papers, pshap, shifts, training
from benchmarks.gpu.running import Rows, Settings, Step, origin_of, read_predictions, run
from replication.cpu_limits import usable_cores
from vitrail.errors import exit_on_error

LANES = 4  # number of steps that run at the same time, of those that measure no times
BUILD = Path("build") / "gpu-check"
ARCHIVE = Path("build") / "flowers102-32px.npz"


def all_steps() -> list[Step]:
    """Return the steps in their order: blocks are compiled during the first ones, timed later."""
    lists = (
        papers.compilation_steps(),
        equality.equality_steps(),
        shifts.steps(),
        kernel.steps(),
        equality.sync_steps(),
        training.steps(),
        papers.steps(),
        pshap.steps(),
        training.flowers_steps(),
    )
    return [step for steps in lists for step in steps]


def main() -> None:
    """Run the steps that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="smallest sizes, on the CPU")
    parser.add_argument("--device", help="torch's name; cuda, with --quick cpu")
    parser.add_argument("--output", type=Path, help=f"CSV to append to; {BUILD}/rows.csv")
    parser.add_argument("--flowers", type=Path, default=ARCHIVE, help=f"archive; {ARCHIVE}")
    parser.add_argument("--runs", type=Path, default=BUILD / "runs", help="of checkpoints")
    parser.add_argument("--only", nargs="+", default=[""], help="steps whose names begin so")
    parser.add_argument("--seconds", type=float, default=460, help="for all steps")
    parser.add_argument("--commit", help="for the rows, where there is no repository")
    args = parser.parse_args()

    device = args.device or ("cpu" if args.quick else "cuda")
    cores = usable_cores()
    lanes = cores if args.quick else LANES  # two threads that share a core wait for each other
    threads = max(1, cores // lanes)
    settings = Settings(device, args.quick, args.flowers, args.runs, threads)
    steps = [step for step in all_steps() if step.name.startswith(tuple(args.only))]
    origin = origin_of(device, args.commit)
    predictions = {} if args.quick else read_predictions()
    rows = Rows(args.output or BUILD / "rows.csv", origin, predictions)
    if run(steps, settings, rows, lanes, args.seconds):
        raise SystemExit(1)


if __name__ == "__main__":
    exit_on_error(main)
