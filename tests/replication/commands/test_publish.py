"""Only what hangs on its measurements, weights and code, at clean commits, is published."""

import json
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from replication.commands import publication as command
from replication.commands.results import sha256_once
from vitrail import provenance
from vitrail.files import sha256

NUMBERS = {"plain": [80.0, 81.0, 82.0], "mixup": [70.0, 71.0, 72.0]}


@pytest.fixture
def git(checkout, monkeypatch):
    """Git in the checkout, whose first commit holds everything there."""

    def run(*arguments):
        identity = ["-c", "user.name=Nobody", "-c", "user.email=nobody@example.org"]
        command = ["git", *identity, *arguments]
        done = subprocess.run(command, cwd=checkout, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    monkeypatch.setattr(provenance, "PACKAGE", checkout / "src" / "vitrail")
    command.fault_of_commits.cache_clear()
    (checkout / ".gitignore").write_text("/runs/\n/results/*\n!/results/published/\n")
    (checkout / "README.md").write_text("Read me.\n")
    run("init", "--quiet")
    run("add", ".")
    run("commit", "--quiet", "-m", "Begin")
    return run


@pytest.fixture
def made(make, git):
    """Results of a clean commit, and the catalogue."""
    return make(NUMBERS, commit=git("rev-parse", "HEAD"))


@pytest.fixture
def published(checkout):
    return checkout / "results" / "published" / "laptop"


@pytest.fixture
def publish(vitrail):
    def run(*options):
        sha256_once.cache_clear()
        return vitrail("publish", "--scale", "laptop", *options)

    return run


def refusal(done):
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    return done.err


def files_of(folder):
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def test_results_of_a_clean_commit_are_copied_with_a_report_and_a_manifest(
    made, publish, published
):
    done = publish()
    assert done.code == 0, done.err
    names = ["tiny/table1.csv", "tiny/table1.md", "tiny/table1.tex"]
    assert files_of(published) == ["manifest.json", "report.md", *names]
    ours = made.results / "tiny" / "table1.csv"
    assert (published / "tiny" / "table1.csv").read_bytes() == ours.read_bytes()
    assert "tiny_table2: not built" in done.out
    assert [path.name for path in published.parent.iterdir()] == ["laptop"]


def test_the_manifest_names_measurements_weights_and_code_by_their_digests(
    made, publish, published
):
    publish()
    entry = json.loads((published / "manifest.json").read_text())["tiny_table1"]
    measurement = made.paper("tiny").measurement("accuracy", "plain")
    told = entry["measurements"][str(measurement.path.relative_to("runs"))]
    taken = json.loads(measurement.path.read_text())
    assert told["code"] == taken["code"]
    assert told["weights"] == taken["weights"]
    assert set(entry["files"]) == {f"tiny/table1.{end}" for end in ("csv", "md", "tex")}


def test_what_was_not_built_here_stays_published_until_it_is_pruned(made, publish, published):
    publish()
    other = published / "tiny" / "table9.csv"
    other.write_text("x")
    manifest = json.loads((published / "manifest.json").read_text())
    manifest["tiny_table9"] = {"files": {"tiny/table9.csv": sha256(other)}, "measurements": {}}
    (published / "manifest.json").write_text(json.dumps(manifest))
    assert publish().code == 0
    assert other.exists()
    done = publish("--prune")
    assert not other.exists()
    assert "Deleted results/published/laptop/tiny/table9.csv" in " ".join(done.out.split())


@pytest.fixture
def logged(made):
    """The results, whose two runs have logs of three seeds."""
    for name in NUMBERS:
        for seed in range(3):
            log = made.paper("tiny").run(name).seed_folder(seed) / "log.jsonl"
            entries = [{"step": 18 * n, "epoch": n, "loss": 3.0 / n, "lr": 0.1} for n in (1, 2)]
            log.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return made


def test_the_logs_of_the_trainings_are_published_by_epoch_and_verified(
    logged, publish, published, vitrail
):
    publish()
    file = published / "tiny" / "training_logs.csv"
    table = pd.read_csv(file)
    names = {logged.paper("tiny").run(name).folder.name for name in NUMBERS}
    assert set(table["run"]) == names
    assert len(table) == 2 * 3 * 2
    assert set(table["loss"]) == {3.0, 1.5}
    assert vitrail("verify", "--scale", "laptop").code == 0
    file.write_text(file.read_text().replace("1.5", "1.4"))
    done = vitrail("verify", "--scale", "laptop")
    assert done.code == 1
    assert "training_logs.csv was changed after it was published" in " ".join(done.out.split())


def test_the_logs_of_runs_that_are_not_built_here_stay(logged, publish, published):
    """As those of runs that no published artifact hangs on do not."""
    publish()
    file = published / "tiny" / "training_logs.csv"
    manifest = json.loads((published / "manifest.json").read_text())
    rows = "elsewhere-0a1b2c3d,0,1,18,2,0.1\nretired-0a1b2c3d,0,1,18,2,0.1\n"
    file.write_text(file.read_text() + rows)
    manifest["training_logs"]["files"]["tiny/training_logs.csv"] = sha256(file)
    manifest["tiny_table9"] = {
        "files": {}, "measurements": {}, "trained by code": {"tiny/elsewhere-0a1b2c3d/seed0": "x"}
    }  # fmt: skip
    (published / "manifest.json").write_text(json.dumps(manifest))
    assert publish().code == 0
    runs = set(pd.read_csv(file)["run"])
    assert "elsewhere-0a1b2c3d" in runs
    assert "retired-0a1b2c3d" not in runs
    publish("--prune")
    assert len(set(pd.read_csv(file)["run"])) == 2


def test_a_publication_that_was_killed_between_its_renames_is_put_back(made, publish, published):
    publish()
    before = (published / "tiny" / "table1.csv").read_bytes()
    published.rename(published.with_name(".laptop.123.old"))
    (published.parents[1] / "laptop" / "tiny" / "table1.md").unlink()  # now nothing is built
    assert "nothing to publish" in refusal(publish())
    assert (published / "tiny" / "table1.csv").read_bytes() == before


@pytest.mark.parametrize("name", ["table1.csv", "table1.md", "table1.tex"])
def test_a_file_edited_by_hand_is_refused(made, publish, published, name):
    file = made.results / "tiny" / name
    file.write_text(file.read_text().replace("81.0", "99.9"))
    assert f"{file} is not what its measurements give" in refusal(publish())
    assert not published.exists()


def test_a_measurement_edited_by_hand_is_refused(made, publish):
    path = made.paper("tiny").measurement("accuracy", "plain").path
    path.write_text(path.read_text().replace("81.0", "99.9"))
    assert "is not what its measurements give" in refusal(publish())


def test_numbers_of_other_weights_are_refused(made, publish):
    run = made.paper("tiny").run("plain")
    run.weights(1).write_text("others")
    assert f"was measured on other weights than {run.weights(1)} holds" in refusal(publish())


def test_a_published_file_that_was_edited_is_not_published_again(made, publish, published):
    publish()
    (published / "tiny" / "table1.md").write_text("edited")
    assert "was changed after it was published" in refusal(publish())
    assert publish("--prune").code == 0


def test_a_publication_that_is_interrupted_between_its_renames_keeps_the_former(
    made, publish, published, monkeypatch
):
    publish()
    before = files_of(published)
    rename = Path.rename

    def interrupted(path, target):
        if path.name.endswith(".new"):
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        command.publish(made)
    assert files_of(published) == before


def test_weights_that_no_receipt_names_are_refused(made, publish):
    run = made.paper("tiny").run("plain")
    run.receipts[0].unlink()
    assert "which no receipt vouches for: delete" in refusal(publish())


def test_numbers_of_other_code_are_refused(made, publish):
    path = made.paper("tiny").measurement("accuracy", "plain").path
    taken = json.loads(path.read_text())
    path.write_text(json.dumps({**taken, "code": "0123456789abcdef"}))
    shutil.rmtree(made.results)
    from replication.evidence.tables import render

    render(made, made.artifact("tiny", "table1"))
    assert f"{path} was measured by other code than is here" in refusal(publish())


def test_numbers_of_a_recipe_that_has_changed_since_are_not_there(made, publish, checkout, git):
    recipes = checkout / "configs" / "papers" / "tiny" / "recipes.yaml"
    recipes.write_text(recipes.read_text().replace("lr: 0.001", "lr: 0.002"))
    git("commit", "--quiet", "-am", "Change a recipe")
    assert "is not what its measurements give" in refusal(publish())


def test_a_sentence_in_a_document_asks_for_no_new_measurement(made, publish, checkout, git):
    for name in ("README.md", "configs/papers/tiny/claims.yaml", "configs/hardware.yaml"):
        path = checkout / name
        path.write_text(path.read_text() + "# a sentence\n")
    git("commit", "--quiet", "-am", "Say more")
    assert publish().code == 0


def test_a_training_by_older_code_is_published_and_named(make, git, publish, published):
    catalog = make(NUMBERS, commit=git("rev-parse", "HEAD"), code="0123456789abcdef")
    done = publish()
    assert done.code == 0, done.err
    folder = catalog.paper("tiny").run("plain").folder.name
    assert f"tiny/{folder} was trained by older code" in " ".join(done.out.split())
    trained = json.loads((published / "manifest.json").read_text())["tiny_table1"]
    assert trained["trained by code"][f"tiny/{folder}/seed0"] == "0123456789abcdef"


@pytest.mark.parametrize(
    ("commit", "fault"),
    [
        ("{head}-dirty", "with uncommitted changes"),
        ("{head}+unknown", "'unknown' is no commit"),
        ("HEAD", "'HEAD' is no commit"),
        ("0" * 40, "is not in the history of HEAD"),
        ("", "does not say at which commit"),
    ],
)
def test_only_clean_commits_in_the_history_of_head_pass(make, git, publish, commit, fault):
    make(NUMBERS, commit=commit.format(head=git("rev-parse", "HEAD")))
    assert fault in refusal(publish())


def test_the_weights_must_be_of_such_commits_too(made, publish):
    folder = made.paper("tiny").run("plain").seed_folder(2)
    facts = json.loads((folder / "provenance.json").read_text())
    facts["commit"] += "-dirty"
    (folder / "provenance.json").write_text(json.dumps(facts))
    text = refusal(publish())
    assert f"{folder}: it was made at" in text
    assert "and train again" in text


def test_every_seed_behind_a_number_must_say_what_trained_it(made, publish):
    folder = made.paper("tiny").run("plain").seed_folder(0)
    (folder / "provenance.json").unlink()
    assert f"{folder} has no provenance.json" in refusal(publish())


@pytest.mark.parametrize("name", ["README.md", "new.py", "configs/papers/new/notes.md"])
def test_changed_and_new_files_are_refused_unless_git_ignores_them(
    made, publish, git, checkout, name
):
    git("config", "status.showUntrackedFiles", "no")
    (checkout / name).parent.mkdir(exist_ok=True)
    (checkout / name).write_text("{}\n")
    assert "differs from the last commit or is not in it" in refusal(publish())
    git("add", name)
    git("commit", "--quiet", "-m", "Add")
    assert publish().code == 0


def test_published_files_may_differ_from_the_last_commit(made, publish, git, published):
    publish()
    git("add", ".")
    git("commit", "--quiet", "-m", "Publish")
    (published / "notes.md").write_text("new\n")
    assert publish().code == 0


def test_another_folder_of_results_does_not_move_the_published_one(make, git, vitrail, published):
    make(NUMBERS, commit=git("rev-parse", "HEAD"), results="elsewhere")
    (published.parents[2] / ".git" / "info" / "exclude").write_text("elsewhere\n")
    done = vitrail("publish", "--scale", "laptop", "--results", "elsewhere")
    assert done.code == 0, done.err
    assert (published / "tiny" / "table1.csv").is_file()


def test_a_git_that_cannot_tell_is_said_and_nothing_is_published(
    made, publish, published, checkout
):
    (checkout / ".git" / "index").write_text("damaged")
    assert "is no git repository" in refusal(publish())
    assert not published.exists()


def test_a_cell_that_was_not_run_is_published_and_reported(make, git, publish):
    make({"plain": NUMBERS["plain"]}, commit=git("rev-parse", "HEAD"))
    done = publish()
    assert done.code == 0, done.err
    assert "tiny_table1: 1 cell not run." in done.out


def test_outside_of_a_repository_it_says_so(make, publish, checkout, monkeypatch):
    monkeypatch.setattr(provenance, "PACKAGE", checkout / "src" / "vitrail")
    make(NUMBERS)
    assert "is no git repository" in refusal(publish())
