"""One table's chain on a real SLURM, its training cancelled half-way.

The command is the reader's own, `snakemake variance_table5 --profile slurm`, at smoke scale, in a
copy of the checkout whose Table 5 has one cell, and whose training is long enough to be cut. That
one asks for two (fake) GPUs, so that two processes share it, as they do at full scale.
"""

import csv
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import yaml

from tests.checkout import Checkout
from tests.cluster.conftest import until
from vitrine.plan.schema import read_yaml

pytestmark = pytest.mark.cluster

EPOCHS = 10  # of 24 steps
CUT_FROM = 48  # steps
COMMAND = ["variance_table5", "--profile", "slurm", "--config", "scale=smoke"]
HERE = [
    *("--set-threads", "evaluate=16"),  # more than the cores of a machine that tests this
    *("--slurm-init-seconds-before-status-checks", "1"),
]


@contextmanager
def edited(path):
    """Change a YAML file as plain data."""
    content = read_yaml(path)
    yield content
    path.write_text(yaml.safe_dump(content, sort_keys=False))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A copy of the checkout with one cell in Table 5, and a long training behind it."""
    copy = Checkout(tmp_path_factory.mktemp("checkout")).path
    paper = copy / "configs" / "papers" / "variance"
    (paper / "reference" / "table5.csv").unlink()
    with edited(paper / "artifacts.yaml") as artifacts:
        table = artifacts["artifacts"]["table5"]
        table["rows"], table["columns"] = table["rows"][:1], table["columns"][:1]
    with edited(paper / "scales" / "smoke.yaml") as scale:
        scale["recipes"]["vit_*"] = {
            "schedule": {"epochs": EPOCHS, "warmup_epochs": 1},
            "batch": {"size": 48, "micro": 24},
        }
    with edited(copy / "configs" / "scales" / "smoke.yaml") as scale:
        scale["resources"]["train"]["gpus"] = 2
    return copy


@pytest.fixture(scope="module")
def story(cluster, folder):
    """What happened: the jobs by the scheduler's records, the attempts by the training's own."""
    output = folder / "snakemake.txt"

    def attempts():
        files = [*folder.glob("runs/variance/*/seed0/checkpoints/attempts.json")]
        return json.loads(files[0].read_text()) if files else []

    with output.open("w") as file:
        snakemake = subprocess.Popen(
            [sys.executable, "-m", "snakemake", *COMMAND, *HERE],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder / "src")},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        until(lambda: attempts() and attempts()[0]["last_step"] >= CUT_FROM, 150, "training")
        (first,) = cluster.jobs("train")
        cluster.ask("scancel", first["JobId"])
        until(lambda: len(attempts()) == 2, 120, "starting anew")
        seen = attempts()
        status = snakemake.wait(timeout=200)
    finally:
        snakemake.kill()
        snakemake.wait()
        print(output.read_text())
    jobs = {rule: cluster.jobs(rule) for rule in ("train", "evaluate")}
    states = {job["JobId"]: cluster.ended(job)["JobState"] for rule in jobs for job in jobs[rule]}
    return SimpleNamespace(status=status, jobs=jobs, states=states, attempts=seen)


def test_the_target_is_made(story, folder):
    assert story.status == 0
    with (folder / "results/smoke/variance/table5.csv").open(newline="") as file:
        (cell,) = csv.DictReader(file)
    assert 0 < float(cell["measured"]) <= 100


def test_trainings_and_evaluations_run_on_the_nodes(story):
    for job in (*story.jobs["train"], *story.jobs["evaluate"]):
        assert job["NodeList"] in {"n1", "n2"}
        assert job["NumNodes"] == "1"


def test_a_job_goes_where_there_is_what_it_asks_for(story):
    assert {(job["Partition"], job["JOB_GRES"]) for job in story.jobs["train"]} == {
        ("gpu", "gpu:2")
    }
    assert {(job["Partition"], job["JOB_GRES"]) for job in story.jobs["evaluate"]} == {
        ("cpu", "(null)")
    }


def test_the_threads_of_a_job_are_not_capped_by_the_cores_of_this_machine(story):
    assert {job["NumCPUs"] for job in story.jobs["evaluate"]} == {"16"}


def test_a_cancelled_training_is_submitted_anew_with_more_time(story):
    first, second = story.jobs["train"]
    assert story.states[first["JobId"]] == "CANCELLED"
    assert story.states[second["JobId"]] == "COMPLETED"
    assert (first["TimeLimit"], second["TimeLimit"]) == ("00:10:00", "00:20:00")


def test_a_cancelled_training_goes_on_from_its_checkpoint(story, folder):
    first, second = story.attempts
    assert second["first_step"] >= first["last_step"] >= CUT_FROM
    (run,) = folder.glob("runs/variance/*/seed0")
    origin = json.loads((run / "provenance.json").read_text())
    assert (origin["attempts"], origin["interruptions"], origin["processes"]) == (2, 1, 2)
    steps = [json.loads(line)["step"] for line in (run / "log.jsonl").read_text().splitlines()]
    assert steps == sorted(set(steps))
    assert len([step for step in steps if step <= first["last_step"]]) > 1
    assert steps[-1] == origin["steps"]
