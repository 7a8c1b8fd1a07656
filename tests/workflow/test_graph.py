"""The graph, run for real on a copy of the checkout with a fifth paper in it."""

import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from replication.config.recipe import short_hash
from replication.config.schema import as_yaml, read_yaml
from replication.plan.catalog import load_catalog
from replication.records.specs import Artifact
from replication.report.ledger import RECORDS, as_lines, ledger_of, published_folder
from tests.conftest import FIFTH_PAPER, ROOT
from tests.repository import begin

pytestmark = pytest.mark.slow

LAPTOP = ("--config", "scale=laptop")
FETCHED = f"runs/data-{short_hash('data')}"
HOSTILE = "a b\"$(touch x)`touch x`'ü"  # as a folder's name, in which a shell sees commands
AT_LAPTOP = (
    *("--config", "scale=laptop", f"data_root={HOSTILE}/data"),
    *(f"{name}_root={HOSTILE}/{name}" for name in ("runs", "results")),
)
PAPER = Path("configs/papers/template")
MODELS = Path("src/vitrail/template/models.py")
MEASURES = Path("src/replication/papers/template")


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def made(make_checkout):
    """The template's table, made at laptop scale."""
    checkout = make_checkout()
    done = checkout.snakemake("template_table1", *LAPTOP)
    assert done.returncode == 0, done.stderr
    checkout.said = done.stderr
    return checkout


def test_the_picture_of_the_graph_names_all_its_rules():
    text = "".join(path.read_text() for path in (ROOT / "workflow" / "rules").glob("*.smk"))
    rules = {*re.findall(r"^rule (\w+):", text, re.MULTILINE), *Artifact.SUFFIXES}
    picture = (ROOT / "docs" / "graph.svg").read_text()
    boxes = re.findall(r'font-weight="bold">([^<]+)<', picture)
    assert {name for box in boxes for name in box.split(", ")} >= rules
    assert len(rules) >= 8


def files_in(folder):
    """The files below a folder with their times, besides Snakemake's own and compiled Python."""
    return {
        str(file.relative_to(folder)): file.lstat().st_mtime_ns
        for file in folder.rglob("*")
        if not {".snakemake", "__pycache__"} & set(file.relative_to(folder).parts)
        and not file.is_dir()
    }


@pytest.mark.parametrize(
    "asked", [("-n", "all"), ("-n", "-p", "all", "--profile", "slurm"), ("--dag",), ("--summary",)]
)
def test_a_dry_run_changes_no_file(make_checkout, asked):
    checkout = make_checkout()
    before = files_in(checkout.path)
    done = checkout.snakemake(*asked, *LAPTOP)
    assert done.returncode == 0, done.stderr
    assert files_in(checkout.path) == before


def test_a_dry_run_leaves_the_nodes_of_what_was_made_as_they_are(made):
    before = files_in(made.path / "runs")
    with made.changed(PAPER / "recipes.yaml", faster):
        assert made.planned("template_table1", *LAPTOP)["train"] == 1
    assert files_in(made.path / "runs") == before


def test_without_hooks_no_job_starts(made):
    """A hook writes the nodes that jobs read."""
    done = made.snakemake("template_table1", "--no-hooks", "--forceall", *LAPTOP)
    assert done.returncode == 2
    assert "start without --no-hooks" in done.stderr


def test_a_fifth_paper_is_three_folders(made):
    """Its table is trained, measured, rendered."""
    rows = read(made.path / "results" / "laptop" / "template" / "table1.csv")
    assert [(row["row"], row["column"]) for row in rows] == [
        ("Narrow", "Accuracy"),
        ("Narrow", "Parameters"),
        ("Wide", "Accuracy"),
        ("Wide", "Parameters"),
    ]
    parameters = [row for row in rows if row["column"] == "Parameters"]
    assert [float(row["measured"]) for row in parameters] == [1634, 13002]
    assert {row["verdict"] for row in parameters} == {"exact"}
    assert all(0 <= float(row["measured"]) <= 100 for row in rows if row["unit"] == "%")
    assert {row["scale"] for row in rows} == {"laptop"}
    assert (made.path / "results/laptop/template/table1.md").read_text().count("Narrow") == 1


def test_without_git_one_is_told_that_nothing_can_be_published(made):
    assert "git does not tell the commit" in made.said


def test_beside_the_other_papers_it_is_planned_and_no_file_of_theirs_is_touched(checkout):
    planned = checkout.planned("template_table1", *LAPTOP)
    assert (planned["train"], planned["evaluate"], planned["table"]) == (2, 2, 1)


def test_a_fifth_paper_brings_its_own_training_and_its_own_measure(make_checkout):
    """Both lie in its package: the table is trained and made, and its price is known.

    They are not committed, so one is told that the table cannot be published.
    """
    checkout = make_checkout()
    folder, own = checkout.path, FIFTH_PAPER / "own_training"
    begin(folder)
    shutil.copytree(own / "configs", folder / PAPER, dirs_exist_ok=True)
    shutil.copytree(own / "apparatus", folder / MEASURES, dirs_exist_ok=True)
    (folder / PAPER / "reference" / "table1.csv").unlink()
    (folder / PAPER / "claims.yaml").unlink()
    planned = checkout.vitrail("plan", "template_table1", "--scale", "laptop", "--json")
    assert planned.returncode == 0, planned.stderr
    hours = json.loads(planned.stdout)["evaluation_hours"]
    assert hours["not_priced"] == []
    assert hours["all"][0] > 0
    done = checkout.snakemake("template_table1", *LAPTOP)
    assert done.returncode == 0, done.stderr
    assert "have uncommitted changes, so what is made now cannot be published" in done.stderr
    rows = read(folder / "results" / "laptop" / "template" / "table1.csv")
    assert [row["row"] for row in rows] == ["Clean", "Clean", "Noisy", "Noisy"]
    assert all(10 < float(row["measured"]) <= 100 for row in rows)
    (checkpoints,) = (folder / "runs" / "template").glob("noisy-*/seed*/weights.safetensors")
    assert not any(name.startswith("model.") for name in load_file(checkpoints))


def test_a_fifth_paper_leaves_documents_as_they_are(checkout):

    def pages():
        return {path: path.read_text() for path in (checkout.path / "docs").rglob("*.md")}

    before = pages()
    subprocess.run(
        [sys.executable, "-m", "tools.docs"],
        cwd=checkout.path,
        env={**os.environ, "PYTHONPATH": "src"},
        check=True,
    )
    assert pages() == before


def test_a_download_that_fails_fails_its_step(checkout):
    """Also though its words go through a pipe, to the terminal and to the log.

    It has been tried several times, so the profile's retries do not repeat it.
    """
    path = checkout.path / "configs" / "datasets.yaml"
    path.write_text(re.sub(r"https\S+(cifar-10-python)", r"file:///nowhere/\1", path.read_text()))
    receipt = f"{FETCHED}/cifar10.json"
    done = checkout.snakemake(receipt, "--config", "scale=full", "--retries", "1")
    assert done.returncode == 1
    assert done.stderr.count("cannot download") == 1
    assert "completed successfully" not in done.stderr


def test_nothing_is_written_into_the_folder_of_the_data_for_a_bundled_dataset(checkout):
    root = "Makefile/data"  # below a file nobody can write
    receipt = f"runs/data-{short_hash(root)}/digits.json"
    done = checkout.snakemake(receipt, "--config", "scale=laptop", f"data_root={root}")
    assert done.returncode == 0, done.stderr
    assert (checkout.path / receipt).is_file()


def test_datasets_made_of_the_same_files_are_not_fetched_at_once(checkout):
    planned = checkout.planned(f"{FETCHED}/cifar10-position.json", "--config", "scale=full")
    assert planned == {"fetch_dataset": 2, "total": 2}


def test_a_run_folder_says_what_it_is(made):
    folders = list((made.path / "runs" / "template").glob("wide-*/seed*"))
    assert len(folders) == 1
    names = {file.name for file in folders[0].iterdir()}
    assert names >= {"recipe.yaml", "log.jsonl", "weights.safetensors"}
    assert yaml.safe_load((folders[0] / "recipe.yaml").read_text())["model"]["args"] == {
        "width": 64
    }


def test_jobs_on_this_machine_are_forked_from_a_process_that_has_imported_torch(made):
    """What Snakemake starts for each is small, and measured by it; a short one not at all."""
    logs = list((made.path / "runs" / "template").glob("*/logs/trained-seed*.tsv"))
    taken = [row["max_rss"] for log in logs for row in csv.DictReader(log.open(), delimiter="\t")]
    assert len(taken) == 2
    assert all(megabytes == "NA" or float(megabytes) < 100 for megabytes in taken)


def test_each_step_is_a_line_and_the_last_one_says_where_the_result_is(made):
    logged = ("--logger", "vitrail")
    done = made.snakemake("template_table1", *logged, *LAPTOP, "results_root=elsewhere")
    place = "elsewhere/laptop/template/table1.md"
    assert "\n[1/2, " in done.stderr
    assert "] table template table1: " in done.stderr
    assert f"vitrail: template_table1 is in {place}" in done.stderr.splitlines()
    assert (made.path / place).is_file()


def faster(text):
    """The template's recipes, one with another learning rate."""
    recipes = yaml.safe_load(text)
    recipes["axes"]["width"]["wide"]["optimizer"] = {"lr": 0.02}
    return as_yaml(recipes)


def test_a_changed_learning_rate_reruns_that_run_and_its_artifacts_only(made):
    with made.changed(PAPER / "recipes.yaml", faster):
        planned = made.planned("template_table1", *LAPTOP)
    assert planned == {
        "train": 1, "evaluate": 1, "benchmark": 1, "table": 1, "template_table1": 1, "total": 5
    }  # fmt: skip


def test_a_changed_caption_renders_again_and_trains_nothing(made):
    with made.changed(
        PAPER / "artifacts.yaml", lambda text: text.replace("A wider network", "The wider network")
    ):
        planned = made.planned("template_table1", *LAPTOP)
    assert planned == {"table": 1, "template_table1": 1, "total": 2}


def test_changed_code_of_what_is_measured_measures_again_and_trains_nothing(made):
    with made.changed(MODELS, lambda text: text + "CHANGED = True\n"):
        planned = made.planned("template_table1", *LAPTOP)
    assert planned == {
        "evaluate": 2, "benchmark": 2, "table": 1, "template_table1": 1, "total": 6
    }  # fmt: skip


def test_what_is_made_is_not_made_again_for_a_comment(made):
    with made.changed(MODELS, lambda text: text + "# a comment\n"):
        planned = made.planned("template_table1", *LAPTOP)
    assert planned == {}


def test_what_is_restored_is_not_made_again(made, tmp_path, monkeypatch):
    """As in a new clone, in which the data alone were fetched."""
    monkeypatch.chdir(made.path)
    catalog = load_catalog(scale="laptop")
    (table,) = catalog.paper("template").artifacts.values()
    records = ledger_of(catalog).behind(catalog.rendering(table))
    published = published_folder(catalog) / "template" / RECORDS
    published.parent.mkdir(parents=True)
    published.write_bytes(as_lines(records.values()))
    emptied = (".snakemake", "runs/template", "results/laptop/template")
    aside = {Path(name): tmp_path / str(number) for number, name in enumerate(emptied)}
    for here, there in aside.items():
        here.rename(there)
    try:
        assert "train" in made.planned("template_table1", *LAPTOP)
        done = made.vitrail("restore", "template_table1", "--scale", "laptop")
        assert done.returncode == 0, done.stderr
        planned = made.planned("template_table1", *LAPTOP)
        assert planned == {"table": 1, "template_table1": 1, "total": 2}
    finally:
        shutil.rmtree(published.parent)
        for here, there in aside.items():
            shutil.rmtree(here, ignore_errors=True)
            there.rename(here)


@pytest.fixture(scope="module")
def tuned(make_checkout):
    """Another checkout, whose paper trains one network under two names and fine-tunes it twice."""
    checkout = make_checkout()
    folder = checkout.path / "configs" / "papers" / "template"
    (folder / "reference" / "table1.csv").unlink()
    recipes = read_yaml(folder / "recipes.yaml")
    source = {"model": {"args": {"width": 64}}, "schedule": {"epochs": 2}}
    start = {"model": {"args": {"width": 64}, "weights_from": "again"}}
    widths = {
        "wide": source,
        "again": source,
        "kept": {**start, "schedule": {"epochs": 0}},
        "tuned": start,
    }
    recipes["axes"]["width"] = widths
    (folder / "recipes.yaml").write_text(as_yaml(recipes))
    artifacts = read_yaml(folder / "artifacts.yaml")
    table = artifacts["artifacts"]["table1"]
    table["rows"] = [{"label": name, "width": name} for name in widths]
    table["columns"] = table["columns"][:1]
    (folder / "artifacts.yaml").write_text(as_yaml(artifacts))
    (folder / "claims.yaml").unlink()
    laptop = folder / "scales" / "laptop.yaml"
    seeds = {"runs": {"*": {"seeds": 3}}}
    laptop.write_text(as_yaml(seeds))
    done = checkout.snakemake("template_table1", *AT_LAPTOP)
    assert done.returncode == 0, done.stderr
    checkout.planned_first = checkout.counts(done.stdout + done.stderr)
    return checkout


def test_recipes_that_come_out_equal_are_trained_and_measured_once(tuned):
    assert (tuned.planned_first["train"], tuned.planned_first["evaluate"]) == (9, 9)
    assert tuned.planned("template_table1", *AT_LAPTOP) == {}
    rows = read(tuned.path / HOSTILE / "results" / "laptop" / "template" / "table1.csv")
    wide, again, kept, _ = (
        {name: value for name, value in row.items() if name != "row"} for row in rows
    )
    assert wide == again
    assert wide["measured"] == kept["measured"]
    assert wide["recipe_hash"] != kept["recipe_hash"]


def test_a_command_in_the_name_of_a_folder_is_not_run(tuned):
    for name in ("runs", "results"):
        assert any((tuned.path / HOSTILE / name).iterdir())
    assert not list(tuned.path.rglob("x"))


def test_a_fine_tuning_starts_from_its_sources_weights_seed_by_seed(tuned):
    runs = tuned.path / HOSTILE / "runs" / "template"
    (wide,), (kept,), (trained,) = (runs.glob(f"{name}-*") for name in ("wide", "kept", "tuned"))
    assert not list(runs.glob("again-*"))
    seeds = [weights.parent.name for weights in wide.glob("*/weights.safetensors")]
    assert len(seeds) == 3
    for seed in seeds:
        source, copy, further = (
            load_file(run / seed / "weights.safetensors") for run in (wide, kept, trained)
        )
        assert all(torch.equal(copy[name], value) for name, value in source.items())
        assert not any(torch.equal(further[name], value) for name, value in source.items())


def test_a_changed_source_trains_its_fine_tunings_anew(tuned):
    with tuned.changed(PAPER / "recipes.yaml", lambda text: text.replace("epochs: 2", "epochs: 3")):
        planned = tuned.planned("template_table1", *AT_LAPTOP)
    assert (planned["train"], planned["evaluate"]) == (9, 9)  # of three seeds each


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("template_tabel1",), "did you mean 'template_table1'"),
        (("all", "--config", "scale=lapotp"), "scale 'lapotp' is unknown; did you mean 'laptop'"),
        (("all", "--config", "scael=full"), "unknown key 'scael'; did you mean 'scale'"),
        (("all", "--config", "lead_paper=shfit"), "did you mean 'shift'"),
        (("all", "--config", "runs_root="), "'runs_root' is "),
        (("all", "--config", "results_root=out/{x}"), "'results_root' is 'out/{x}'"),
        (("results/laptop/shift/table99.csv",), "no file that scale 'laptop' makes"),
        (("runs/shift/measurements/none-01234567.json",), "no file that scale 'laptop' makes"),
    ],
)
def test_a_users_mistake_is_one_sentence_and_status_two(checkout, arguments, sentence):
    done = checkout.snakemake(*arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("vitrail:")]) == 1


def test_a_wrong_word_in_a_claim_is_told_before_any_job_starts(checkout):
    with checkout.changed(PAPER / "claims.yaml", lambda text: text.replace("above", "abov")):
        done = checkout.snakemake("-n", "all")
    assert done.returncode == 2
    assert "'abov', which is unknown; did you mean 'above'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_on_gpus_is_refused_before_any_job_starts_where_there_is_none(made, monkeypatch):
    """Also before data are fetched; what computes nothing is made."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    gpus = ("--config", "device=cuda", "runs_root=new/runs", "data_root=new/data")
    receipt = f"new/runs/data-{short_hash('new/data')}/digits.json"
    refused = made.snakemake("template_table1", *gpus)
    assert refused.returncode == 2
    assert "vitrail: device 'cuda'" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (made.path / "new").exists()
    fetched = made.snakemake(receipt, *gpus)
    assert fetched.returncode == 0, fetched.stderr
    assert (made.path / receipt).is_file()


def test_where_a_table_is_is_told_only_if_it_was_made(made):
    options = ("--config", "scale=laptop", "results_root=until", "runs_root=until/runs")
    part = made.snakemake("template_table1", "--until", "benchmark", *options)
    assert part.returncode == 0, part.stderr
    assert "template_table1 is in" not in part.stderr
    whole = made.snakemake("template_table1", *options)
    assert "template_table1 is in until/laptop/template/table1.md" in whole.stderr


CONDA = """#!/bin/sh
case "$1 $2" in
    "info --json") echo '{{"conda_prefix": "{prefix}", "platform": "linux-64"}}' ;;
    "--version ") echo conda 24.11.1 ;;
    "config --get") echo '{{"get": {{"channel_priority": "strict"}}}}' ;;
    "env create")
        for folder; do :; done  # the last argument
        mkdir -p "$folder/bin"
        printf '#!/bin/sh\\necho "$PYTHONPATH" >"{prefix}/searched"\\nexec "{python}" "$@"\\n' \
            >"$folder/bin/python"
        chmod +x "$folder/bin/python" ;;
esac
"""


def test_the_project_is_imported_in_an_environment_of_conda(make_checkout, tmp_path, monkeypatch):
    """Snakemake drops the caller's PYTHONPATH there; the environment has the locks' packages."""
    checkout = make_checkout()
    (tmp_path / "bin").mkdir()
    conda, activate = (tmp_path / "bin" / name for name in ("conda", "activate"))
    conda.write_text(CONDA.format(prefix=tmp_path, python=sys.executable))
    conda.chmod(0o755)
    activate.write_text('export PATH="$1/bin:$PATH"\n')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    receipt = f"{FETCHED}/digits.json"
    done = checkout.snakemake(receipt, "--sdm", "conda", *LAPTOP)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (checkout.path / receipt).is_file()
    assert (tmp_path / "searched").read_text() == f"{checkout.path / 'src'}\n"


def test_missing_data_is_told_before_any_job_starts(checkout):
    def on_cpus(text):
        return text.replace("device: cuda", "device: cpu")

    with checkout.changed("configs/scales/full.yaml", on_cpus):
        done = checkout.snakemake("variance_table5", "--config", "scale=full")
    assert done.returncode == 2
    assert "imagenet" in done.stderr.lower()
    assert "data/imagenet/" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((checkout.path / "runs").glob("variance/*/trained*"))


def test_runs_that_cannot_be_written_are_one_sentence_and_status_two(made):
    (made.path / "taken").write_text("")
    done = made.snakemake("template_table1", "--config", "scale=laptop", "runs_root=taken")
    assert done.returncode == 2
    assert "cannot write taken/" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_failed_job_leaves_its_log_and_it_is_shown(made):
    measurement = next((made.path / "runs" / "template").glob("wide-*/measurements/*.json"))
    target = str(measurement.relative_to(made.path))
    with made.changed(MODELS, lambda text: text + "raise RuntimeError('broken on purpose')\n"):
        done = made.snakemake(target, *LAPTOP)
    assert done.returncode != 0
    assert "broken on purpose" in done.stdout + done.stderr
    logs = [file.read_text() for file in (made.path / "runs/template").rglob("logs/*.log")]
    assert any("broken on purpose" in text for text in logs)
    assert made.snakemake("template_table1", *LAPTOP).returncode == 0


IMPORTED = """
import sys
from snakemake.cli import main
try:
    main(["-n", "-q", "rules", "--config", "scale=full"])  # without a target
except SystemExit as done:
    print(done.code, sorted({"torch", "timm", "mmseg", "mmengine", "cv2"} & set(sys.modules)))
"""


def test_planning_everything_imports_no_torch_no_timm_no_mmsegmentation_and_needs_no_data(checkout):
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED],
        cwd=checkout.path,
        env={**os.environ, "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "0 []", done.stderr
    planned = checkout.counts(done.stdout + done.stderr)
    assert planned["all"] == 1
    assert planned["train"] > 20
    assert planned["total"] > 50


def test_a_planned_job_goes_on_after_the_yaml_has_changed(made):
    """What a cluster's job runs reads its node, and no catalogue."""
    (path,) = (made.path / "runs/template").glob("wide-*/nodes/laptop/trained-seed*.json")
    papers = made.path / "configs" / "papers"
    papers.rename(papers.with_name("elsewhere"))
    try:
        done = made.vitrail("run", str(path.relative_to(made.path)))
    finally:
        papers.with_name("elsewhere").rename(papers)
    assert done.returncode == 0, done.stderr


def test_a_job_on_a_cluster_finds_the_nodes_of_what_was_made_before(tuned):
    """The snakemake within it sees one rule, and reads the nodes of inputs that this makes."""
    runs = tuned.path / HOSTILE / "runs" / "template"
    kept = min(runs.glob("kept-*/trained-seed*.json"))
    for node in runs.glob("*/nodes/laptop/trained-*.json"):
        node.unlink()
    kept.unlink()
    target = str(kept.relative_to(tuned.path))
    done = tuned.snakemake(target, *AT_LAPTOP)
    assert done.returncode == 0, done.stderr
    papers = tuned.path / "configs" / "papers"
    papers.rename(papers.with_name("elsewhere"))
    try:
        within = ("--mode", "remote", "--allowed-rules", "train", "--force", "--nolock")
        done = tuned.snakemake(target, *within, *AT_LAPTOP)
    finally:
        papers.with_name("elsewhere").rename(papers)
    assert done.returncode == 0, done.stderr


def test_trainings_are_repeated_for_changed_code_only_if_asked(made):
    retrain = ("--config", "scale=laptop", "retrain=changed")
    assert made.planned("template_table1", *retrain) == {}
    with made.changed(MODELS, lambda text: text + "CHANGED = True\n"):
        done = made.snakemake("template_table1", *retrain)
        assert done.returncode == 0, done.stderr
        assert made.counts(done.stdout + done.stderr)["train"] == 2
        assert made.planned("template_table1", *retrain) == {}
        assert made.planned("template_table1", *LAPTOP) == {}
    again = made.snakemake("template_table1", *LAPTOP)
    assert again.returncode == 0, again.stderr


def test_every_target_is_listed_with_its_caption(checkout):
    done = checkout.snakemake("--list-target-rules")
    listing = " ".join((done.stdout + done.stderr).split())
    assert "template_table1 (Table 1, p. 1: A wider network reads digits better.)" in listing
    assert "variance_table5" in listing


def test_a_results_folder_that_is_a_file_is_told_and_nothing_is_lost(made):
    (made.path / "taken").write_text("")
    done = made.snakemake("template_table1", *LAPTOP, "results_root=taken")
    assert done.returncode != 0
    assert made.planned("template_table1", *LAPTOP) == {}


@pytest.mark.parametrize("broken", ["weights", "measurement"])
def test_the_printed_remedy_followed_to_the_letter_mends_the_results(made, broken):
    (weights,) = (made.path / "runs/template").glob("wide-*/seed*/weights.safetensors")
    if broken == "weights":
        with weights.open("ab") as file:
            file.write(b"one byte more")
    else:
        path = next(weights.parents[1].glob("measurements/*.json"))
        record = json.loads(path.read_text())
        record["code"] = "0" * 16
        path.write_text(json.dumps(record, indent=1) + "\n")

    def status():
        return made.vitrail("status", "--scale", "laptop").stdout

    remedies = [line.partition(": ")[2] for line in status().splitlines() if "--forcerun" in line]
    assert remedies
    for remedy in remedies:
        *before, snakemake = remedy.split(" && ")
        for command in before:
            assert command.startswith("rm -r runs/")
            subprocess.run(shlex.split(command), cwd=made.path, check=True)
        words = shlex.split(snakemake)
        assert words[0] == "snakemake"
        done = made.snakemake(*words[1:])
        assert done.returncode == 0, done.stderr
    assert "--forcerun" not in status()


@pytest.mark.skipif(bool(torch.version.cuda or torch.version.hip), reason="torch can use GPUs")
def test_torch_for_cpus_is_refused_before_the_first_job_where_jobs_need_gpus(checkout):
    done = checkout.snakemake(
        "variance_fig1", "--config", "fast_dev_run=true", "device=cuda", "data_root=new"
    )
    assert done.returncode != 0
    assert "make install TORCH=cuda" in done.stderr
    assert not any(file.is_file() for file in (checkout.path / "new").rglob("*"))
