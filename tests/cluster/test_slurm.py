"""One table's chain on a real SLURM: its training is cut three times, and goes on.

The command is the reader's own, `snakemake variance_table5 --profile slurm`, at laptop scale, in a
copy of the checkout whose Table 5 has one cell, and whose training is long enough to be cut. That
one asks for a (fake) GPU on each of two nodes, so that a process on each shares it.

Its partition gives less time than it asks for. The first attempt loses a node and is queued anew by
SLURM. The second, of the same job, is cancelled. From then on the partition gives so little that
SLURM warns the third soon after it has started. The fourth has the time of the first. Then the run
is trained anew while somebody else holds its folder, and the job has to wait for a reason that
cannot pass. Then it is trained from its beginning, preempted by an urgent job, and evaluated with
too little memory. At last Snakemake stops until SLURM has forgotten its job.
"""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from replication.config.schema import as_yaml, read_yaml
from replication.records.records import read_record
from replication.training.run_folder import exclusive
from tests.checkout import Checkout
from tests.cluster.conftest import until

pytestmark = pytest.mark.cluster

EPOCHS = 600  # of 24 steps: more than two minutes, SHORT and some, on a fast machine too
CUT_FROM = 48  # steps
LITTLE = 150  # MB, less than torch takes
ASKED, GIVEN, SHORT = 10, 9, 2  # minutes: by the training, by the partition, and for a while
WARNED = 60  # seconds before the end, give or take the half minute between two looks of SLURM
COMMAND = ["variance_table5", "--profile", "slurm", "--config", "scale=laptop"]
GPUS = ["--set-resources", "train:gres=gpu:1"]  # what trains on CPUs asks for none by itself
HERE = [
    *("--set-threads", "evaluate=16"),  # more than the cores of a machine that tests this
    *("--vitrail-slurm-init-seconds-before-status-checks", "1"),
    *("--default-resources", f"slurm_extra='--signal=USR1@{WARNED}'"),
]


@contextmanager
def edited(path):
    """Change a YAML file as plain data."""
    content = read_yaml(path)
    yield content
    path.write_text(as_yaml(content))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A copy of the checkout with one cell in Table 5, and a long training behind it."""
    copy = Checkout(tmp_path_factory.mktemp("checkout")).path
    paper = copy / "configs" / "papers" / "variance"
    (paper / "reference" / "table5.csv").unlink()
    (paper / "claims.yaml").unlink()  # of cells that are left out here
    with edited(paper / "artifacts.yaml") as artifacts:
        table = artifacts["artifacts"]["table5"]
        table["rows"], table["columns"] = table["rows"][:1], table["columns"][:1]
    with edited(paper / "scales" / "laptop.yaml") as scale:
        scale["runs"] = {"*": {"seeds": 1}}
        scale["recipes"]["vit_s-*"] = {
            "data": {"dataset": "digits"},
            "schedule": {"epochs": EPOCHS, "warmup_epochs": 1},
            "batch": {"size": 48, "micro": 24},
        }
    with edited(copy / "configs" / "scales" / "laptop.yaml") as scale:
        del scale["first_seed"]
        scale["checkpoint_minutes"] = 0.01
        scale["resources"]["train"] |= {"nodes": 2, "runtime": ASKED}
    return copy


@contextmanager
def snakemake(folder, *arguments):
    """Run the command; `output` in the folder is what it prints."""
    with (folder / "snakemake.txt").open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "snakemake", *COMMAND, *HERE, *GPUS, *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder / "src")},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        print((folder / "snakemake.txt").read_text())


@pytest.fixture(scope="module")
def story(cluster, folder):
    """What happened: the jobs by the scheduler's records, the attempts by the training's own."""

    def attempts():
        files = [*folder.glob("runs/variance/*/seed0/checkpoints/attempts.json")]
        return json.loads(files[0].read_text()) if files else []

    def reached(attempt):
        steps = [each["last_step"] - each["first_step"] for each in attempts()]
        return len(steps) > attempt and steps[attempt] >= CUT_FROM

    def saved():
        return any(folder.glob("runs/variance/*/seed0/checkpoints/step-*.pt"))

    cluster.limit("gpu", GIVEN)
    with snakemake(folder) as process:
        # A fast machine takes the steps before the first checkpoint is due.
        until(lambda: reached(0) and saved(), 300, "training")
        cluster.lose("n2")
        until(lambda: reached(1), 300, "starting anew")
        cluster.limit("gpu", SHORT)
        (first,) = cluster.jobs("train")
        cluster.ask("scancel", first["JobId"])
        until(lambda: len(attempts()) == 3, 300, "starting once more")
        cluster.limit("gpu", GIVEN)
        until(lambda: len(attempts()) == 4, 300, "saving and starting for the last time")
        seen = attempts()
        status = process.wait(timeout=600)
    jobs = {rule: cluster.jobs(rule) for rule in ("train", "evaluate")}
    states = [cluster.states(job) for job in jobs["train"]]
    return SimpleNamespace(status=status, jobs=jobs, states=states, attempts=seen)


def test_the_target_is_made(story, folder):
    assert story.status == 0
    with (folder / "results/laptop/variance/table5.csv").open(newline="") as file:
        (cell,) = csv.DictReader(file)
    assert 0 < float(cell["measured"]) <= 100


def test_a_training_runs_on_the_nodes_that_it_asks_for_and_an_evaluation_on_one(story):
    assert {(job["NodeList"], job["NumNodes"]) for job in story.jobs["train"]} == {("n[1-2]", "2")}
    for job in story.jobs["evaluate"]:
        assert (job["NodeList"] in {"n1", "n2"}, job["NumNodes"]) == (True, "1")


def test_a_job_goes_where_there_is_what_it_asks_for(story):
    assert {(job["Partition"], job["JOB_GRES"]) for job in story.jobs["train"]} == {
        ("gpu", "gpu:2")
    }
    assert {(job["Partition"], job["JOB_GRES"]) for job in story.jobs["evaluate"]} == {
        ("cpu", "(null)")
    }


def test_the_threads_of_a_job_are_not_capped_by_the_cores_of_this_machine(story):
    assert {job["NumCPUs"] for job in story.jobs["evaluate"]} == {"16"}


def test_a_training_is_submitted_anew_with_the_time_that_its_partition_gives(story):
    (lost, cancelled), warned, completed = story.states
    assert lost in {"NODE_FAIL", "REQUEUED"}  # and queued anew by SLURM itself
    assert cancelled == "CANCELLED"
    assert warned == ["FAILED"]  # of itself, before its time was up
    assert completed == ["COMPLETED"]
    limits = [job["TimeLimit"] for job in story.jobs["train"]]
    assert limits == [f"00:0{minutes}:00" for minutes in (GIVEN, SHORT, GIVEN)]


def test_a_training_that_loses_a_node_goes_on_from_its_checkpoint(story, folder):
    lost, second, *_ = story.attempts
    assert second["first_step"] > 0
    (run,) = folder.glob("runs/variance/*/seed0")
    origin = read_record(run.with_name("trained-seed0.json")).outcome["facts"]
    assert (origin["attempts"], origin["interruptions"], origin["processes"]) == (4, 3, 2)
    steps = [json.loads(line)["step"] for line in (run / "log.jsonl").read_text().splitlines()]
    assert steps == sorted(set(steps))
    assert len([step for step in steps if step <= lost["last_step"]]) > 1
    assert steps[-1] == origin["steps"]


def test_a_cancelled_training_goes_on_from_its_checkpoint(story):
    _, cancelled, third, _ = story.attempts
    assert third["first_step"] >= cancelled["last_step"] >= cancelled["first_step"] + CUT_FROM


def test_a_training_that_runs_out_of_time_saves_first(story):
    *_, third, last = story.attempts
    assert third["last_step"] > third["first_step"]
    assert last["first_step"] == third["last_step"]


def test_two_nodes_train_to_the_bits_of_two_processes_on_one(story, folder):
    (planned,) = folder.glob("runs/variance/*/nodes/laptop/trained-seed0.json")
    job = json.loads(planned.read_text())
    home = Path(job["run"]["home"])
    job["run"]["home"] = str(home / "on_one_node")
    job["output"] = str(home / "on_one_node" / Path(job["output"]).name)
    (folder / "job.json").write_text(json.dumps(job))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    subprocess.run(
        [*torchrun, "--nproc-per-node=2", "-m", "vitrail", "run", "job.json"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"},
        check=True,
    )
    run, weights = folder / home, "seed0/weights.safetensors"
    assert (run / weights).read_bytes() == (run / "on_one_node" / weights).read_bytes()


@pytest.fixture(scope="module")
def held(story, cluster, folder):
    """The training anew, queued in vain at first, then of a run that somebody else trains."""
    (run,) = folder.glob("runs/variance/*/seed0")
    before = len(cluster.jobs("train"))
    output = folder / "snakemake.txt"
    cluster.ask("scontrol", "update", "PartitionName=gpu", "State=DOWN")
    with snakemake(folder, "--forcerun", "train") as process:
        with exclusive(run):
            (job,) = until(lambda: cluster.jobs("train")[before:], 60, "submitting")
            cluster.limit("gpu", SHORT)
            cluster.ask("scontrol", "update", "PartitionName=gpu", "State=UP")
            until(lambda: "cannot start" in output.read_text(), 90, "telling of it")
            cluster.ask("scontrol", "update", f"JobId={job['JobId']}", f"TimeLimit={SHORT}")
            until(lambda: "another job works in its folder" in output.read_text(), 120, "waiting")
        status = process.wait(timeout=180)
    return SimpleNamespace(
        status=status, jobs=cluster.jobs("train")[before:], output=output.read_text()
    )


def test_a_job_that_cannot_start_is_told(held):
    number = held.jobs[0]["JobId"]
    assert f"SLURM job {number} (rule train) cannot start: PartitionTimeLimit" in held.output


def test_a_job_on_a_held_folder_is_submitted_again_and_uses_up_no_attempt(held):
    assert held.status == 0
    assert len(held.jobs) >= 2
    assert "Trying to restart" not in held.output


def test_an_error_that_will_not_pass_is_not_retried(held, cluster, folder):
    (weights,) = folder.glob("runs/variance/*/seed0/weights.safetensors")
    weights.write_bytes(b"damaged")
    before = len(cluster.jobs("train"))
    with snakemake(folder, "--forcerun", "train") as process:
        assert process.wait(timeout=120) == 1
    assert len(cluster.jobs("train")) == before + 1
    assert "Trying to restart" not in (folder / "snakemake.txt").read_text()


@pytest.fixture(scope="module")
def preempted(cluster, folder):
    """The training from its beginning, of which an urgent job takes both nodes for a while.

    The evaluation behind it asks for less memory than it takes.
    """
    for run in folder.glob("runs/variance/*/seed0"):
        shutil.rmtree(run.parent)
    cluster.limit("gpu", GIVEN)
    before = {rule: len(cluster.jobs(rule)) for rule in ("train", "evaluate")}
    little = [*GPUS, f"evaluate:mem_mb={LITTLE}"]
    with snakemake(folder, "--forcerun", "train", *little) as process:
        until(lambda: [*folder.glob("runs/*/*/seed0/checkpoints/step-*.pt")], 300, "saving")
        urgent = ["--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null"]
        cluster.ask("sbatch", "--wait", *urgent, "--wrap", "sleep 5")
        status = process.wait(timeout=600)
    jobs = {rule: cluster.jobs(rule)[number:] for rule, number in before.items()}
    return SimpleNamespace(status=status, jobs=jobs)


def test_a_preempted_training_is_queued_anew_and_goes_on(preempted, cluster, folder):
    assert preempted.status == 0
    (training,) = preempted.jobs["train"]
    assert training["Restarts"] == "1"
    assert cluster.states(training)[-1] == "COMPLETED"
    (run,) = folder.glob("runs/variance/*/seed0")
    origin = read_record(run.with_name("trained-seed0.json")).outcome["facts"]
    assert (origin["attempts"], origin["interruptions"]) == (2, 1)


def test_after_an_end_out_of_memory_a_job_asks_for_twice_as_much(preempted, cluster):
    asked = [job["MinMemoryNode"] for job in preempted.jobs["evaluate"]]
    assert len(asked) > 1
    assert asked == [f"{LITTLE * 2**number}M" for number in range(len(asked))]
    *ended, last = [cluster.states(job)[-1] for job in preempted.jobs["evaluate"]]
    assert {*ended} <= {"FAILED", "OUT_OF_MEMORY"}  # of the step, or of the job
    assert last == "COMPLETED"


def test_a_job_that_slurm_has_forgotten_is_judged_by_its_output(preempted, cluster, folder):
    """As after a login node was down for longer than MinJobAge."""
    before = len(cluster.jobs("train"))
    cluster.remember(2)
    with snakemake(folder, "--forcerun", "train") as process:
        (job,) = until(lambda: cluster.jobs("train")[before:], 60, "submitting")
        until(lambda: cluster.jobs("train")[before]["JobState"] == "RUNNING", 60, "starting")
        process.send_signal(signal.SIGSTOP)
        until(lambda: not cluster.knows(job), 240, "forgetting")
        process.send_signal(signal.SIGCONT)
        assert process.wait(timeout=180) == 0
    cluster.remember(300)
    assert len(cluster.jobs("train")) == before + 1
    assert "has ended: its output is there" in (folder / "snakemake.txt").read_text()
