"""Where jobs run and what they ask for: the default profile, and the one for SLURM."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass

import pytest
import yaml
import yte

from replication.config.recipe import short_hash

SLURM = ("--profile", "slurm")
ALLOCATION = (
    *("--profile", "profiles/allocation"),
    *("--cores", "320", "--resources", "gpu=32", "mem_mb=2000000"),
)


@dataclass
class Job:
    """A job of a dry run, as Snakemake prints it."""

    rule: str
    output: str
    threads: int
    resources: dict[str, str]


def dry_run(checkout, *arguments):
    """The jobs that a call would run; a dry run takes one core for all there is, unless told."""
    done = checkout.snakemake("-n", "--cores", "500", *arguments)
    assert done.returncode == 0, done.stderr
    blocks = re.split(r"^(?:local)?rule (\w+):$", done.stdout + done.stderr, flags=re.MULTILINE)
    return [_job(rule, block) for rule, block in zip(blocks[1::2], blocks[2::2], strict=True)]


def _job(rule, block):
    entries = dict(re.findall(r"^    (\w+): (.*)$", block, flags=re.MULTILINE))
    resources = re.findall(r"(\w+)=([^,]*)", entries["resources"])
    return Job(rule, entries.get("output", ""), int(entries.get("threads", 1)), dict(resources))


def of_rule(jobs, rule):
    found = [job for job in jobs if job.rule == rule]
    assert found
    return found


@pytest.fixture(scope="module")
def full(checkout):
    """What `snakemake variance_table5 --profile slurm` would run."""
    return dry_run(checkout, "variance_table5", *SLURM)


@pytest.fixture(scope="module")
def slurm(root):
    return yaml.safe_load((root / "slurm" / "config.yaml").read_text())


@pytest.mark.slow
def test_the_slurm_profile_selects_full_scale(full):
    (table,) = of_rule(full, "table")
    assert table.output.startswith("results/full/variance/table5.json")


@pytest.mark.slow
def test_the_scale_of_the_command_line_wins(checkout):
    jobs = dry_run(checkout, "variance_table5", *SLURM, "--config", "scale=laptop")
    (table,) = of_rule(jobs, "table")
    assert table.output.startswith("results/laptop/variance/table5.json")
    assert {job.resources["gpu"] for job in of_rule(jobs, "train")} == {"0"}


def test_another_setting_on_the_command_line_keeps_full_scale(checkout):
    jobs = dry_run(checkout, "variance_table5", *SLURM, "--config", "results_root=elsewhere")
    (table,) = of_rule(jobs, "table")
    assert table.output.startswith("elsewhere/full/variance/table5.json")


@pytest.mark.parametrize("rule", ["train", "evaluate"])
def test_a_full_scale_job_asks_for_what_the_scale_says(full, root, rule):
    scale = yaml.safe_load((root / "configs/scales/full.yaml").read_text())
    wanted = scale["resources"][rule]
    for job in of_rule(full, rule):
        assert job.threads == wanted["threads"]
        assert job.resources["gpu"] == str(wanted["gpus"])
        assert job.resources["mem_mb"] == str(wanted["mem_mb"])
        assert job.resources["runtime"] == str(wanted["runtime"])


ACCOUNT = ("--default-resources", "slurm_account=project")  # in the place of all of the profile's


@pytest.mark.slow
@pytest.mark.parametrize("command_line", [(), ACCOUNT])
def test_the_gpus_of_a_job_are_on_one_node(checkout, command_line):
    """SLURM, asked for GPUs alone, takes some from this node and some from that."""
    jobs = dry_run(checkout, "variance_table5", "octic_fig2", *SLURM, *command_line)
    for rule in ("train", "evaluate", "benchmark"):
        assert {job.resources["nodes"] for job in of_rule(jobs, rule)} == {"1"}


def on_two_nodes(scale):
    """Full scale, with trainings on as many GPUs on two nodes as it gives them on one."""
    return scale.replace("train: {gpus: 8", "train: {nodes: 2, gpus: 4")


def test_a_training_on_two_nodes_asks_for_a_task_and_all_its_gpus_on_each(checkout):
    """As SLURM's executor and srun need it; `gpu` would be the sum over the nodes."""
    with checkout.changed("configs/scales/full.yaml", on_two_nodes):
        jobs = dry_run(checkout, "variance_table5", *SLURM)
    for job in of_rule(jobs, "train"):
        wanted = {"nodes": "2", "gres": "gpu:4", "mpi": "srun", "tasks": "2", "tasks_per_gpu": "0"}
        assert {name: job.resources.get(name) for name in wanted} == wanted
        assert "gpu" not in job.resources
    assert {job.resources["nodes"] for job in of_rule(jobs, "evaluate")} == {"1"}


def test_in_an_allocation_srun_places_each_step_by_what_it_asks_for(checkout, full, root):
    scale = yaml.safe_load((root / "configs/scales/full.yaml").read_text())
    shown = checkout.snakemake("-n", "-p", "variance_table5", *ALLOCATION)
    assert shown.returncode == 0, shown.stderr
    placed = re.findall(r"bash profiles/allocation/step (\d+) (\d+) (\d+) ", shown.stdout)
    assert len(placed) == len(of_rule(full, "train")) + len(of_rule(full, "evaluate")) > 1
    wanted = [scale["resources"][step] for step in ("train", "evaluate")]
    assert {*placed} == {(str(r["threads"]), str(r["mem_mb"]), str(r["gpus"])) for r in wanted}


def test_a_training_on_several_nodes_is_refused_within_an_allocation(checkout):
    with checkout.changed("configs/scales/full.yaml", on_two_nodes):
        shown = checkout.snakemake("-n", "-p", "variance_table5", *ALLOCATION)
    assert shown.returncode != 0
    assert "make it by --profile slurm" in shown.stdout + shown.stderr


def test_a_partition_has_the_gpus_of_a_full_scale_training(root):
    partitions = yaml.safe_load((root / "slurm" / "partitions.yaml").read_text())
    scale = yaml.safe_load((root / "configs/scales/full.yaml").read_text())
    gpus = [limits.get("max_gpu", 0) for limits in partitions["partitions"].values()]
    assert max(gpus) >= scale["resources"]["train"]["gpus"]
    assert min(gpus) == 0


def test_only_the_profile_retries(root, slurm):
    """A rule's own retries would be counted again by the snakemake inside each job.

    A rule without any can only be one that retries by itself.
    """
    assert slurm["retries"] >= 1
    for file in (root / "Snakefile", *(root / "workflow/rules").glob("*.smk")):
        assert not re.search(r"^\s*retries\s*:(?! 0\b)", file.read_text(), flags=re.MULTILINE), file


def default_profile(root, monkeypatch, *words, profile=None):
    """The default profile as it is read by `snakemake` with these words after it."""
    monkeypatch.setattr(sys, "argv", ["snakemake", *words])
    monkeypatch.delenv("SNAKEMAKE_PROFILE", raising=False)
    if profile:
        monkeypatch.setenv("SNAKEMAKE_PROFILE", profile)
    return yte.process_yaml((root / "profiles" / "default" / "config.yaml").read_text())


@pytest.mark.parametrize("words", [["variance_table5"], ["all", "-n"], ["all", "--config", "a=-e"]])
def test_jobs_on_this_machine_use_all_its_cores(root, monkeypatch, words):
    assert default_profile(root, monkeypatch, *words)["cores"] == "all"


@pytest.mark.parametrize("words", [["all"], ["all", "-j8"], ["all", "--jobs", "8"]])
def test_jobs_on_this_machine_share_its_memory_and_one_gpu(root, monkeypatch, words):
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    gpu, memory = default_profile(root, monkeypatch, *words)["resources"]
    assert gpu == "gpu=1"
    assert 0 < int(memory.removeprefix("mem_mb=")) <= machine


def test_jobs_within_a_slurm_job_share_the_memory_of_that_job(root, monkeypatch):
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "64")
    assert "mem_mb=64" in default_profile(root, monkeypatch, "all", "--cores", "4")["resources"]


@pytest.mark.slow
@pytest.mark.parametrize(("each", "given"), [("mem_mb=600", "mem_mb=1000"), ("gpu=1", "gpu=1")])
def test_jobs_that_need_all_the_memory_or_the_gpu_run_one_at_a_time(tmp_path, each, given):
    """That a resource bounds the jobs that run together, however many cores there are."""
    (tmp_path / "Snakefile").write_text(
        "rule all:\n    input: 'a', 'b'\n"
        f"rule one:\n    output: '{{name}}'\n    resources: {each}\n"
        "    shell: 'mkdir alone && sleep 0.5 && rmdir alone && touch {output}'\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "--cores", "8", "--resources", given],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_weekend_on_one_gpu_is_planned_with_one_gpu_for_a_job(checkout):
    jobs = dry_run(checkout, "all", "--config", "scale=workstation")
    assert {job.resources["gpu"] for job in of_rule(jobs, "train")} <= {"0", "1"}
    for job in of_rule(jobs, "evaluate"):  # but what counts multiply-adds is on the CPU
        assert job.resources["gpu"] == ("0" if "judged_flops" in job.output else "1"), job.output


@pytest.mark.parametrize(
    "words",
    [
        ["all", "--profile", "slurm"],
        ["all", "--profile=slurm"],
        ["all", "--executor", "slurm"],
        ["all", "-e", "slurm"],
        ["all", "-j", "1"],
        ["all", "-j1"],
        ["all", "--jobs=1"],
    ],
)
def test_the_default_profile_leaves_cores_to_whoever_asks(root, monkeypatch, words):
    assert "cores" not in default_profile(root, monkeypatch, *words)


def test_a_profile_of_the_environment_counts_as_one(root, monkeypatch):
    assert "cores" not in default_profile(root, monkeypatch, "all", profile="slurm")


def test_the_default_profile_overrides_nothing_of_the_slurm_profile(root, monkeypatch, slurm):
    default = default_profile(root, monkeypatch, "all", *SLURM)
    assert {key: value for key, value in default.items() if slurm.get(key, value) != value} == {}


@pytest.mark.slow
def test_jobs_use_the_python_that_runs_snakemake(checkout):
    """`.venv/bin/snakemake` needs no activated environment."""
    receipt = f"runs/data-{short_hash('data')}/digits.json"
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", receipt],
        cwd=checkout.path,
        env={"PATH": "/usr/bin:/bin", "HOME": os.environ["HOME"], "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (checkout.path / receipt).is_file()
