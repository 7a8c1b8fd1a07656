import json
import shutil

import pytest
import torch

from replication.cli.doctor import version_differences
from replication.cluster.partition_file import CONFIG, PARTITIONS
from replication.config.datasets import load_registry
from replication.config.schema import as_yaml, read_yaml
from replication.datasets.miniature import write_miniature
from replication.images.opening import SPLITS, build
from tests.conftest import rows_of


@pytest.fixture
def doctor(vitrail, checkout):
    """Run the doctor beside a lock that is met."""
    (checkout / "envs").mkdir()
    (checkout / "envs" / "requirements.lock").write_text("# empty\n")

    def run(*arguments):
        return vitrail("doctor", *arguments)

    return run


def test_a_scale_on_bundled_data_needs_nothing_more(doctor, checkout):
    recipes = checkout / "configs" / "papers" / "tiny" / "recipes.yaml"
    recipes.write_text(recipes.read_text().replace("pretrained: true", "pretrained: false"))
    (checkout / "file").touch()  # nobody can make a folder below it
    for data in ("data", "file/data"):
        done = doctor("--scale", "small", "--data", data)
        assert done.code == 0
        assert "Nothing is missing for scale small" in done.out


def test_a_missing_dataset_is_told_with_its_licence_tree_and_whom_it_blocks(doctor):
    done = doctor("--scale", "full")
    assert done.code == 1
    assert "image-net.org" in done.out
    assert "{train,val}" in done.out
    assert "dataset imagenet; it blocks tiny_table1, tiny_table2" in done.out


@pytest.mark.parametrize(
    ("digest", "state"),
    [("null", "to download, not pinned"), ("a" * 64, "to download"), (None, "missing")],
)
def test_weights_are_told_to_be_pinned_or_not(doctor, checkout, digest, state):
    entry = "vit_tiny_patch16_224: {licence: MIT-0, url: ['http://a/w.pth'], sha256: "
    text = "{}" if digest is None else f"{entry}{digest}}}"
    (checkout / "configs" / "weights.yaml").write_text(text)
    row = next(
        line for line in doctor("--scale", "full").out.splitlines() if "vit_tiny_patch16" in line
    )
    assert state in row
    assert ("MIT-0" in row) == (digest is not None)
    assert ("not pinned" in row) == (digest == "null")


def test_the_dataset_of_a_source_is_needed_too(doctor, checkout, fine_tuning):
    recipes = checkout / "configs" / "papers" / "tiny" / "recipes.yaml"
    written = read_yaml(recipes)
    written["axes"]["mix"]["tuned"]["data"] = {"dataset": "cifar10"}
    recipes.write_text(as_yaml(written))
    artifacts = checkout / "configs" / "papers" / "tiny" / "artifacts.yaml"
    written = read_yaml(artifacts)
    written["artifacts"]["table2"]["rows"].pop()
    artifacts.write_text(as_yaml(written))
    assert "dataset imagenet; it blocks tiny_table1, tiny_table2" in doctor("--scale", "full").out


def test_versions_are_compared_with_the_lock_but_for_the_build(tmp_path):
    lock = tmp_path / "requirements.lock"
    lock.write_text("torch==2.13.0\ntimm==0.0.1\nno-such-package==1.0\n")
    differences = {name: (locked, found) for name, locked, found in version_differences(lock)}
    assert differences.keys() == {"timm", "no-such-package"}
    assert differences["timm"][0] == "0.0.1"
    assert differences["no-such-package"] == ("1.0", None)


def test_a_package_that_is_absent_is_missing(doctor, checkout):
    (checkout / "envs" / "requirements.lock").write_text("no-such-package==1.0\n")
    done = doctor("--scale", "small")
    assert done.code == 1
    assert "no-such-package==1.0" in done.out


def put_slurm(folder, monkeypatch):
    """Put a client of a SLURM controller that answers on the PATH."""
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    up = "Slurmctld(primary) at here is UP"
    for name, said in (("sbatch", ""), ("sinfo", ""), ("scontrol", up)):
        (folder / name).write_text(f"#!/bin/sh\necho '{said}'\n")
        (folder / name).chmod(0o755)


@pytest.fixture
def papers(root, checkout, monkeypatch):
    """A checkout of the four papers, with a cluster and of the data only miniatures of CIFAR."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    checkout, scripts = checkout / "papers", checkout / "scripts"
    shutil.copytree(root / "configs", checkout / "configs")
    (checkout / "envs").mkdir()
    (checkout / "envs" / "requirements.lock").write_text("# empty\n")
    scripts.mkdir()
    put_slurm(scripts, monkeypatch)
    monkeypatch.chdir(checkout)
    path = checkout / "configs" / "datasets.yaml"
    written, registry = read_yaml(path), load_registry(path)
    for name in ("cifar10", "cifar100"):
        write_miniature(registry[name], checkout / "data")
        for split in SPLITS:
            images = len(build(registry[name], split, checkout / "data"))
            written[name][f"{split}_images"] = images
    path.write_text(as_yaml(written))
    return checkout


@pytest.mark.slow
def test_table_1_of_shift_needs_cifar_alone(papers, vitrail):
    done = vitrail("doctor", "table1", "--scale", "full", "--json")
    found = json.loads(done.out)
    assert (done.code, found["missing"], found["weights"]) == (0, [], [])
    states = {dataset["name"]: dataset["state"] for dataset in found["data"]}
    assert states == {"cifar10": "present", "cifar100": "present"}
    assert (
        "Nothing is missing for table1 at scale full."
        in vitrail("doctor", "table1", "--scale", "full").out
    )


def test_a_build_of_torch_for_cpus_is_missing_where_trainings_run_on_gpus(
    papers, vitrail, monkeypatch
):
    monkeypatch.setattr(torch.version, "cuda", None)
    done = vitrail("doctor", "table1", "--scale", "full")
    assert (done.code, "make install TORCH=cuda" in done.out) == (1, True)


@pytest.mark.slow
def test_a_data_root_that_cannot_be_written_is_missing_where_a_dataset_is_downloaded(
    papers, vitrail
):
    for data, code in (("data", 0), ("new", 0), ("file/data", 1)):
        (papers / "file").touch()  # nobody can make a folder below it
        done = vitrail("doctor", "table1", "--scale", "full", "--data", data)
        assert (done.code, "permission to write in file/data" in done.out) == (code, code == 1)


@pytest.mark.parametrize("option", ["--runs", "--results"])
def test_a_folder_of_runs_or_results_that_cannot_be_written_is_missing(papers, vitrail, option):
    (papers / "file").touch()
    for folder, code in (("new", 0), ("file/new", 1)):
        done = vitrail("doctor", "table1", "--scale", "full", option, folder)
        assert (done.code, "permission to write in file/new" in done.out) == (code, code == 1)


def test_a_disk_that_is_too_small_for_all_that_it_gets_is_missing_room(
    papers, vitrail, monkeypatch
):
    """Table 1 at scale full: 9.6 GB of weights, 0.66 of checkpoints, and 0.34 of downloads."""
    usage = shutil.disk_usage(papers)
    for free, code in ((10**12, 0), (10_300_000_000, 1), (10**8, 1)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: usage._replace(free=free))
        done = vitrail("doctor", "table1", "--scale", "full", "--data", "new")
        told = " ".join(done.out.split())
        assert (done.code, "10.6 GB of room in runs and new, whose disk has" in told) == (
            code,
            code,
        )


@pytest.mark.parametrize(("jobs", "room"), [(2, "11.2"), (100, "67.4"), ("unlimited", "67.4")])
def test_the_checkpoints_of_all_trainings_that_run_at_once_need_room(
    papers, vitrail, monkeypatch, jobs, room
):
    """Each training of Table 1 keeps at most 0.66 GB."""
    config = papers / CONFIG
    config.parent.mkdir(parents=True)
    config.write_text(f"jobs: {jobs}\n")
    usage = shutil.disk_usage(papers)._replace(free=10**8)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    done = vitrail("doctor", "table1", "--scale", "full", "--data", "new", "--json")
    (told,) = (sentence for sentence in json.loads(done.out)["missing"] if " of room " in sentence)
    assert told.startswith(f"{room} GB of room")
    assert f"lower jobs in {CONFIG}" in told


def test_a_mistake_in_the_partition_file_is_missing(papers, vitrail):
    file = papers / PARTITIONS
    file.parent.mkdir(parents=True)
    file.write_text("partitions:\n  gpu: {max_runtime: two days}\n")
    done = vitrail("doctor", "table1", "--scale", "full")
    assert (done.code, f"{PARTITIONS}:2: 'partitions.gpu.max_runtime'" in done.out) == (1, True)


@pytest.mark.slow
def test_jobs_that_fit_into_no_partition_are_missing_one(papers, vitrail):
    file = papers / PARTITIONS
    file.parent.mkdir(parents=True)
    for limits, code in (("max_gpu: 8", 0), ("max_gpu: 8, max_mem_mb: 1000", 1), ("", 1)):
        file.write_text(f"partitions:\n  cpu: {{max_mem_mb: 1000}}\n  gpu: {{{limits}}}\n")
        done = vitrail("doctor", "table1", "--scale", "full")
        assert (done.code, f"no partition of {PARTITIONS}" in done.out) == (code, code == 1)


def test_a_partition_that_slurm_lacks_or_gives_less_time_is_told(papers, vitrail):
    """The trainings do not suit the partition without GPUs, so its limit does not matter."""
    file, sinfo = papers / PARTITIONS, papers.with_name("scripts") / "sinfo"
    file.parent.mkdir(parents=True)
    lines = ("cpu|1-00:00:00|16|64000|(null)", "gpu|1:00:00|96|500000|gpu:8")
    sinfo.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
    sinfo.chmod(0o755)

    def told(gpu):
        file.write_text(f"partitions:\n  cpu: {{}}\n  {gpu}\n")
        done = vitrail("doctor", "table1", "--scale", "full", "--json")
        return done.code, " ".join(json.loads(done.out)["missing"])

    assert told("gpu: {max_gpu: 8, max_runtime: 60}") == (0, "")
    for limit in ("", ", max_runtime: 120"):
        code, missing = told(f"gpu: {{max_gpu: 8{limit}}}")
        assert (code, "set max_runtime: 60 there" in missing) == (1, True)
    code, missing = told("gpus: {max_gpu: 8}")
    assert (code, "partition gpus in SLURM, which has only cpu, gpu" in missing) == (1, True)


@pytest.mark.parametrize(
    "written",
    ["slurm_account: me", "slurm-account: me", "default-resources: {slurm-account: me}"],
)
def test_an_account_in_the_wrong_place_is_told(papers, vitrail, written):
    config = papers / CONFIG
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f"{written}\n")
    done = vitrail("doctor", "table1", "--scale", "full", "--json")
    (sentence,) = json.loads(done.out)["missing"]
    assert sentence.startswith(str(CONFIG))
    assert "below 'default-resources:', indented, as 'slurm_account'" in sentence


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("account", "slurm_account"),
        ("slurm_acount", "slurm_account"),
        ("constraints", "constraint"),
    ],
)
def test_a_resource_with_nearly_the_name_of_one_of_the_profile_is_told(papers, vitrail, key, meant):
    config = papers / CONFIG
    config.parent.mkdir(parents=True, exist_ok=True)
    known = "runtime: 60, mem_mb: 4000, gres: shard, slurm_extra: x, slurm_account: me"
    config.write_text(f"default-resources: {{{known}, {key}: me}}\n")
    done = vitrail("doctor", "table1", "--scale", "full", "--json")
    (sentence,) = json.loads(done.out)["missing"]
    assert sentence.startswith(str(CONFIG))
    assert f"'{key}' below 'default-resources:' is no resource; did you mean '{meant}'?" in sentence


def test_a_key_of_the_profile_that_snakemake_does_not_know_is_told(papers, root, vitrail):
    config = papers / CONFIG
    config.parent.mkdir(parents=True)
    text = (root / CONFIG).read_text()

    def told(text):
        config.write_text(text)
        found = json.loads(vitrail("doctor", "table1", "--scale", "full", "--json").out)
        return [sentence for sentence in found["missing"] if sentence.startswith(f"{CONFIG}:")]

    assert told(text) == []
    both = told(text.replace("jobs: 100", "jbos: 100\nslurm_account: me"))
    assert len(both) == 2  # a mistake of one kind hides none of another
    (sentence,) = told(text.replace("jobs: 100", "jbos: 100"))
    line = text[: text.index("jobs: 100")].count("\n") + 1
    assert sentence.startswith(f"{CONFIG}:{line}: ")
    assert "'jbos'; did you mean 'jobs'" in sentence


@pytest.mark.parametrize("value", ["", "''"])
def test_an_empty_resource_of_all_jobs_is_told(papers, vitrail, value):
    config = papers / CONFIG
    config.parent.mkdir(parents=True)
    config.write_text(f"default-resources:\n  slurm_account: {value}\n")
    done = vitrail("doctor", "table1", "--scale", "full", "--json")
    (sentence,) = json.loads(done.out)["missing"]
    assert sentence.startswith(str(CONFIG))
    assert "'slurm_account'" in sentence


def test_an_account_that_slurm_does_not_give_is_told(papers, vitrail):
    scripts, config = papers.with_name("scripts"), papers / CONFIG
    config.parent.mkdir(parents=True)

    def told(account, answer):
        config.write_text(f"default-resources: {{slurm_account: {account}}}\n")
        (scripts / "sacctmgr").write_text(f"#!/bin/sh\n{answer}\n")
        (scripts / "sacctmgr").chmod(0o755)
        done = vitrail("doctor", "table1", "--scale", "full", "--json")
        return done.code, " ".join(json.loads(done.out)["missing"])

    assert told("theirs", "exit 1") == (0, "")
    assert told("Ours", "echo ours; echo 1234") == (0, "")
    assert told("1234", "echo ours; echo 1234") == (0, "")
    code, missing = told("theirs", "echo ours; echo 1234")
    assert (code, f"slurm_account under default-resources in {CONFIG}" in missing) == (1, True)
    assert "1234, ours" in missing


def test_the_rest_of_the_paper_needs_what_is_not_there(papers, vitrail):
    done = vitrail("doctor", "shift_table2", "table1", "--scale", "full")
    assert done.code == 1
    assert "Missing for shift_table2, table1 at scale full" in done.out
    assert "dataset imagenet; it blocks shift_table2" in done.out
    assert "cityscapes" not in done.out


@pytest.mark.slow
def test_a_fault_of_another_paper_is_none_of_a_target(papers, vitrail):
    artifacts = papers / "configs" / "papers" / "octic" / "artifacts.yaml"
    artifacts.write_text(artifacts.read_text().replace(":block_ratios", ":block_rations"))
    assert vitrail("doctor", "table1", "--scale", "full").code == 0
    done = vitrail("doctor", "octic_table1", "--scale", "full")
    assert done.code == 1
    assert "does not define a function 'block_rations'; did you mean 'block_ratios'?" in done.out


def test_an_unknown_target_is_answered_with_the_closest(doctor):
    done = doctor("tiny_table", "--scale", "full")
    assert done.code == 2
    assert "target 'tiny_table' is unknown; did you mean 'tiny_table" in done.err


def test_many_targets_are_counted_and_json_names_all(papers, vitrail):
    told = vitrail("doctor", "--scale", "full").out
    found = json.loads(vitrail("doctor", "--scale", "full", "--json").out)
    (line,) = (line for line in told.splitlines() if line.startswith("imagenet "))
    (data,) = (entry for entry in found["data"] if entry["name"] == "imagenet")
    assert line.rstrip().endswith(f" {len(data['needed_by'])} targets")
    assert "shift_table2" in data["needed_by"]


@pytest.mark.slow
def test_a_terminal_of_100_columns_holds_all_tables(papers, terminal):
    lines = terminal("doctor", "--scale", "full")
    assert max(map(len, rows_of(lines))) <= 100
    assert len(lines) < 150


def test_all_of_it_is_told_as_json(doctor, checkout):
    (checkout / "envs" / "requirements.lock").write_text("no-such-package==1.0\n")
    done = doctor("--scale", "full", "--json")
    assert done.code == 1
    found = json.loads(done.out)
    absent = {"package": "no-such-package", "locked": "1.0", "installed": None}
    assert found["software"]["other_versions"] == [absent]
    assert found["hardware"]["cpu_cores"] >= 1
    (data,) = (entry for entry in found["data"] if entry["name"] == "imagenet")
    assert (data["state"], data["needed_by"]) == ("missing", ["tiny_table1", "tiny_table2"])
    assert "image-net.org" in data["fault"]
    missing = {sentence.split(";")[0] for sentence in found["missing"]}  # a GPU may be, too
    assert missing >= {"packages of the lock: no-such-package==1.0", "dataset imagenet"}
