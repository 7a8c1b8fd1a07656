"""What a limit of the queue costs: a SLURM job for each step, or steps within allocations.

Full scale has 1,126 trainings, evaluations and benchmarks. In this simulation each of them takes
ten minutes of one of the eight places of a node, 2 % of the nodes are faulty (each command fails
there after two seconds), and a user may have five jobs in the queue.

- A job for each step: this project's executor on the simulated SLURM (tests/cluster), by its clock.
- Steps within allocations: list scheduling, as by Snakemake, which starts a step as soon as there
  is a free place, one step per second. One more node is faulty: the first step on it fails, and the
  node is then excluded.

The time that SLURM lets a job, or an allocation, wait for free nodes is not counted.

    PYTHONPATH=. python benchmarks/cluster_packing.py
"""

from __future__ import annotations

import argparse
import heapq
import tempfile
from pathlib import Path

import pandas as pd

from tests.cluster.simulated_slurm import NEVER, Node, Slurm, Target
from tests.cluster.simulation import Simulation

STEPS, SECONDS, PLACES, START = 1126, 600, 8, 1.0


def by_jobs(nodes: int, limit: float) -> tuple[int, int, float]:
    """Return the numbers of targets made, of submissions and of hours, with a job for each step."""
    with tempfile.TemporaryDirectory() as folder:
        targets = [Target(f"t{number}", Path(folder), seconds=SECONDS) for number in range(STEPS)]
        sick = max(1, round(0.02 * nodes))
        machines = [Node(f"n{number}", slots=PLACES) for number in range(nodes - sick)]
        machines += [
            Node(f"s{number}", slots=PLACES, sick=[(0, NEVER, "place")]) for number in range(sick)
        ]
        slurm = Slurm(targets, machines, submit_limit=limit)
        done = Simulation(slurm, Path(folder)).run()
    return len(done.made), len(slurm.jobs), max(job.ended for job in slurm.jobs.values()) / 3600


def by_steps(nodes: int, hours: float) -> tuple[int, int, float]:
    """Return the same numbers for allocations of `nodes` nodes for `hours`; the first is faulty."""
    waiting, made, submissions, now = STEPS, 0, 0, 0.0
    while waiting:
        submissions += 1
        end, excluded = now + 3600 * hours, False
        places = [(now, number // PLACES) for number in range(nodes * PLACES)]
        heapq.heapify(places)
        started = last = now
        while waiting and places:
            free, node = heapq.heappop(places)
            if node == 0 and excluded:
                continue
            started = max(free, started + START)
            if started + SECONDS > end:
                last = end  # a training would go on from its checkpoint later
                break
            if node == 0:
                excluded = True
                continue
            waiting, made = waiting - 1, made + 1
            last = max(last, started + SECONDS)
            heapq.heappush(places, (started + SECONDS, node))
        now = last
    return made, submissions, now / 3600


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=50, help="of the cluster")
    arguments = parser.parse_args()
    rows = [
        ("a job for each step, no limit", *by_jobs(arguments.nodes, NEVER)),
        ("a job for each step, 5 in the queue", *by_jobs(arguments.nodes, 5)),
        ("steps in allocations of 1 node for 24 h", *by_steps(1 + 1, 24)),
        ("steps in allocations of 4 nodes for 24 h", *by_steps(4 + 1, 24)),
    ]
    print(
        pd.DataFrame(rows, columns=["way", "made", "submissions", "hours"]).to_string(index=False)
    )


if __name__ == "__main__":
    main()
