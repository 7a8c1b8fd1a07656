"""A table made by steps within one allocation of a real SLURM."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkout import Checkout

pytestmark = pytest.mark.cluster

TARGET = "variance_table3"
SCRIPT = "profiles/allocation/submit.sh"


@pytest.fixture(scope="module")
def made(cluster, tmp_path_factory):
    """The checkout in which an allocation of two nodes has made a table of several trainings."""
    folder = Checkout(tmp_path_factory.mktemp("checkout")).path
    own = str(Path(sys.executable).parent)
    asked = [
        "--nodes=2",
        "--array=1-1%1",
        "--time=30",
        "--partition=gpu",
        "--output=allocation.txt",
    ]
    done = subprocess.run(
        ["sbatch", "--wait", *asked, SCRIPT, TARGET, "--config", "scale=laptop"],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{own}:{os.environ['PATH']}",
            "PYTHONPATH": str(folder / "src"),
        },
        check=False,
        capture_output=True,
        text=True,
    )
    print(done.stdout, done.stderr, (folder / "allocation.txt").read_text())
    assert done.returncode == 0
    return folder


def test_every_cell_of_the_table_is_measured(made):
    with (made / f"results/laptop/variance/{TARGET.partition('_')[2]}.csv").open(
        newline=""
    ) as file:
        cells = list(csv.DictReader(file))
    made_here = [cell for cell in cells if cell["verdict"] != "not_run"]
    assert len(made_here) > 10
    assert all(cell["measured"] for cell in made_here)


def test_one_submission_runs_all_steps_on_both_nodes(made, cluster):
    (job,) = cluster.named("vitrail")
    assert job["NumNodes"] == "2"
    for node in ("n1", "n2"):
        log = (cluster.folder / f"slurmd.{node}.log").read_text()
        assert log.count("launch task StepId=") > 1
