"""Only what hangs on its measurements, weights and code, at clean commits, is published."""

import gzip
import json
import shlex
import shutil
from pathlib import Path

import pandas as pd
import pytest

from replication.publishing import publish as command
from replication.records.records import digest_once
from replication.report.ledger import RECORDS
from vitrail import provenance
from vitrail.files import sha256

NUMBERS = {"plain": [80.0, 81.0, 82.0], "mixup": [70.0, 71.0, 72.0]}


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
        digest_once.cache_clear()
        return vitrail("publish", "--scale", "laptop", *options)

    return run


def refusal(done):
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    return done.err


def records_of(published):
    """The published records of the tiny paper, as plain data."""
    with gzip.open(published / "tiny" / RECORDS) as lines:
        return [json.loads(line) for line in lines]


def write_records(published, records):
    """Put these records, as plain data, in place of the published ones of the tiny paper."""
    lines = (json.dumps(record, separators=(",", ":")) + "\n" for record in records)
    with gzip.open(published / "tiny" / RECORDS, "wt") as file:
        file.writelines(lines)


def files_of(folder):
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def test_what_a_rehearsal_made_is_refused(checkout, vitrail):
    settings = checkout / "configs" / "default.yaml"
    settings.write_text(settings.read_text().replace("fast_dev_run: false", "fast_dev_run: true"))
    for more in ([], ["--only-render"]):
        assert "fast_dev_run" in refusal(vitrail("publish", *more))


def test_results_of_a_clean_commit_are_copied_with_a_report_and_their_records(
    made, publish, published
):
    done = publish()
    assert done.code == 0, done.err
    assert files_of(published) == [
        "claims.csv",
        "effects.png",
        "effects.svg",
        "models.csv",
        "report.md",
        f"tiny/{RECORDS}",
        "tiny/table1.csv",
        "tiny/table1.md",
    ]
    ours = made.results / "tiny" / "table1.csv"
    assert (published / "tiny" / "table1.csv").read_bytes() == ours.read_bytes()
    assert "tiny_table2: not built" in done.out
    assert [path.name for path in published.parent.iterdir()] == ["laptop"]


def test_the_published_records_are_those_that_the_tables_rest_on(made, publish, published):
    publish()
    paper = made.paper("tiny")
    expected = {run.record for name in NUMBERS for run in paper.runs(name)}
    expected |= {own.path for name in NUMBERS for own in paper.measurements("accuracy", name)}
    expected |= {paper.measurement("facts", None).path, made.rendering(paper.artifacts["table1"])}
    records = {Path(record["node"]["output"]): record for record in records_of(published)}
    assert set(records) == expected
    assert all(record == json.loads(path.read_text()) for path, record in records.items())


@pytest.fixture
def both(make, git):
    """Results of both tables, of a clean commit, and the catalogue."""
    return make({**NUMBERS, "published": [90.0, 91.0, 92.0]}, commit=git("rev-parse", "HEAD"))


def name_of(node):
    of = {"training": "run", "measurement": "measurement", "rendering": "artifact"}
    return node[of[node["kind"]]]["name"]


def test_what_was_not_built_here_stays_published_until_it_is_pruned(
    both, publish, published, commit
):
    publish()
    commit()
    of_both = records_of(published)
    other = published / "tiny" / "table2.csv"
    assert other.is_file()
    for file in both.files(both.paper("tiny").artifacts["table2"]):
        file.unlink()
    assert publish().code == 0
    assert other.is_file()
    assert records_of(published) == of_both
    done = publish("--prune")
    assert not other.exists()
    assert "Deleted results/published/laptop/tiny/table2.csv" in " ".join(done.out.split())
    assert {name_of(record["node"]) for record in records_of(published)} == {
        "plain", "mixup", "accuracy", "facts", "table1"
    }  # fmt: skip


def test_the_report_tells_what_is_published_in_the_words_of_its_own_node(
    both, publish, published, checkout, commit
):
    publish()
    for file in both.files(both.paper("tiny").artifacts["table2"]):
        file.unlink()
    artifacts = checkout / "configs" / "papers" / "tiny" / "artifacts.yaml"
    artifacts.write_text(artifacts.read_text().replace("Published weights.", "Other weights."))
    commit()
    assert publish().code == 0
    report = (published / "report.md").read_text()
    assert "Published weights." in report
    assert "Other weights." not in report


def test_a_result_that_was_published_and_lost_its_record_is_refused(
    both, publish, published, commit
):
    publish()
    for file in both.files(both.paper("tiny").artifacts["table2"]):
        file.unlink()
    records = records_of(published)
    kept = [own for own in records if own["node"].get("artifact", {}).get("name") != "table2"]
    assert len(kept) < len(records)
    write_records(published, kept)
    commit()
    assert "table2" in refusal(publish())
    assert publish("--prune").code == 0


@pytest.fixture
def logged(both):
    """The results, whose three runs have logs of three seeds."""
    for name in (*NUMBERS, "published"):
        for run in both.paper("tiny").runs(name):
            log = run.folder / "log.jsonl"
            entries = [{"step": 18 * n, "epoch": n, "loss": 3.0 / n, "lr": 0.1} for n in (1, 2)]
            log.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return both


def test_the_logs_of_the_trainings_are_published_by_epoch_and_verified(
    logged, publish, published, vitrail, commit
):
    publish()
    commit()
    file = published / "tiny" / "training_logs.csv"
    table = pd.read_csv(file)
    names = {logged.paper("tiny").run(name).home.name for name in (*NUMBERS, "published")}
    assert set(table["run"]) == names
    assert len(table) == 3 * 3 * 2
    assert set(table["loss"]) == {3.0, 1.5}
    assert vitrail("verify", "--scale", "laptop").code == 0
    file.write_text(file.read_text().replace("1.5", "1.4"))
    done = vitrail("verify", "--scale", "laptop")
    assert done.code == 1
    assert "training_logs.csv is not as it was committed" in " ".join(done.out.split())


def test_the_logs_of_runs_that_are_not_built_here_stay(logged, publish, published, commit):
    """As those of runs that no published artifact hangs on do not."""
    publish()
    file = published / "tiny" / "training_logs.csv"
    file.write_text(file.read_text() + "retired-0a1b2c3d,0,1,18,2,0.1\n")
    commit()
    for rendered in logged.files(logged.paper("tiny").artifacts["table2"]):
        rendered.unlink()
    elsewhere = logged.paper("tiny").run("published").home
    shutil.rmtree(elsewhere)
    assert publish().code == 0
    runs = set(pd.read_csv(file)["run"])
    assert elsewhere.name in runs
    assert "retired-0a1b2c3d" not in runs
    commit()
    publish("--prune")
    assert set(pd.read_csv(file)["run"]) == runs - {elsewhere.name}


@pytest.mark.parametrize("name", ["table1.csv", "table1.md"])
def test_a_file_edited_by_hand_is_refused(made, publish, published, name):
    file = made.results / "tiny" / name
    file.write_text(file.read_text().replace("81.0", "99.9"))
    assert f"rendered another {name} than is here" in refusal(publish())
    assert not published.exists()


def test_a_file_and_its_digest_edited_by_hand_are_refused(made, publish, published, rewrite):
    file, record = made.results / "tiny" / "table1.csv", made.results / "tiny" / "table1.json"
    file.write_text(file.read_text().replace("81.0", "99.9"))
    rewrite(record, lambda content: content["outputs"].update({file.name: sha256(file)}))
    assert f"{file} is not what its measurements give" in refusal(publish())
    assert not published.exists()


def test_a_measurement_edited_by_hand_is_refused(made, publish):
    path = made.paper("tiny").measurements("accuracy", "plain")[1].path
    path.write_text(path.read_text().replace("81.0", "99.9"))
    assert f"shows other numbers than {path} has" in refusal(publish())


def test_numbers_of_other_weights_are_refused(made, publish):
    run = made.paper("tiny").runs("plain")[1]
    run.weights.write_text("others")
    assert f"names other weights than {run.weights} holds" in refusal(publish())


def test_a_published_file_that_was_edited_is_not_published_again(made, publish, published, commit):
    publish()
    (published / "tiny" / "table1.md").write_text("edited")
    commit()
    assert "table1.md is not what the published records give" in refusal(publish())
    assert publish("--prune").code == 0


def test_a_published_record_that_was_edited_is_not_published_again(
    made, publish, published, commit
):
    publish()
    before = json.dumps(records_of(published))
    write_records(published, json.loads(before.replace("81.0", "99.9")))
    commit()
    assert "is not what the published records give" in refusal(publish())
    write_records(published, json.loads(before.replace('"seed": 4002', '"seed": 7')))
    commit()
    assert f"{RECORDS}, line" in refusal(publish())
    assert publish("--prune").code == 0


def test_weights_that_no_record_names_are_refused(made, publish):
    run = made.paper("tiny").run("plain")
    run.record.unlink()
    assert "was measured on other weights than" in refusal(publish())


def test_numbers_of_other_code_are_refused(made, publish, rewrite, draw):
    path = made.paper("tiny").measurement("accuracy", "plain").path
    rewrite(path, lambda content: content.update(code="0123456789abcdef"))
    draw(made, made.paper("tiny").artifacts["table1"])
    assert f"{path} was made by other code than is here" in refusal(publish())


def test_numbers_of_a_recipe_that_has_changed_since_are_refused(made, publish, checkout, git):
    recipes = checkout / "configs" / "papers" / "tiny" / "recipes.yaml"
    recipes.write_text(recipes.read_text().replace("lr: 0.001", "lr: 0.002"))
    git("commit", "--quiet", "-am", "Change a recipe")
    assert "was made with other cells and measurements than are written now" in refusal(publish())


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
    folder = catalog.paper("tiny").run("plain").home.name
    assert f"tiny/{folder} was trained by older code" in " ".join(done.out.split())
    (trained,) = {
        record["node"]["code"]
        for record in records_of(published)
        if record["node"]["kind"] == "training" and record["node"]["run"]["name"] == "plain"
    }
    assert trained == "0123456789abcdef"


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


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda facts: facts.update(commit=facts["commit"] + "-dirty"), "with uncommitted changes"),
        (lambda facts: facts.pop("commit"), "does not say at which commit"),
    ],
)
def test_every_seeds_weights_must_be_of_such_a_commit_too(made, publish, rewrite, change, fault):
    run = made.paper("tiny").runs("plain")[2]
    rewrite(run.record, lambda content: change(content["facts"]))
    text = refusal(publish())
    assert f"{run.record}: it " in text
    assert fault in text
    assert f"rm -r {run.folder} " in text


def test_a_table_whose_record_is_gone_is_refused(both, publish):
    """Its other files may be those of any numbers."""
    record = both.rendering(both.paper("tiny").artifacts["table2"])
    record.unlink()
    done = publish()
    assert "tiny_table2: not built" in done.out
    (both.results / "tiny" / "table1.json").unlink()
    assert "has nothing to publish" in refusal(publish())


def test_a_table_whose_record_is_damaged_is_refused_with_the_command_that_draws_it(both, publish):
    record = both.rendering(both.paper("tiny").artifacts["table2"])
    record.write_text("")
    again = both.snakemake("tiny_table2", "--forcerun", str(record))
    assert again in " ".join(refusal(publish()).split())


def test_a_document_below_the_configuration_may_have_changes(made, publish, checkout):
    """Publishing itself rewrites the numbers that it quotes."""
    (checkout / "configs" / "papers" / "tiny" / "deviations.md").write_text("# Deviations\n")
    assert publish().code == 0


def test_a_quote_of_a_cell_that_there_is_not_stops_publishing_before_anything_changes(
    made, publish, checkout
):
    readme = checkout / "README.md"
    readme.write_text('At 1.0<!-- tiny_table1["nobody", "Top-1"] --> percent.\n')
    assert "row 'nobody' is unknown" in refusal(publish())
    assert not (checkout / "results" / "published" / "laptop").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["configs/papers/new/notes.yaml", "src/new.py", "envs/new.txt"])
def test_changed_and_new_files_that_can_decide_a_number_are_refused(
    made, publish, git, checkout, name
):
    git("config", "status.showUntrackedFiles", "no")
    (checkout / name).parent.mkdir(parents=True, exist_ok=True)
    (checkout / name).write_text("{}\n")
    assert f"{name} differs from the last commit or is not in it" in refusal(publish())
    git("add", name)
    git("commit", "--quiet", "-m", "Add")
    assert publish().code == 0


@pytest.mark.parametrize(
    "name", ["README.md", "configs/papers/tiny/deviations.md", "tests/test_new.py"]
)
def test_changed_and_new_files_that_decide_no_number_do_not_matter(made, publish, checkout, name):
    (checkout / name).parent.mkdir(parents=True, exist_ok=True)
    (checkout / name).write_text("{}\n")
    assert publish().code == 0


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--prune",)])
def test_a_published_table_that_was_changed_with_its_records_is_neither_kept_nor_replaced(
    both, make, git, publish, published, commit, options, monkeypatch
):
    """Table and records agree, so only the last commit tells; what is set aside is as it was."""
    publish()
    commit()
    committed = {name: (published / name).read_bytes() for name in files_of(published)}
    make({**NUMBERS, "published": [90.0, 91.0, 99.0]}, commit=git("rev-parse", "HEAD"))
    with monkeypatch.context() as unchecked:
        unchecked.setattr(command, "changed_since_commit", lambda folder: iter(()))
        assert publish().code == 0
    for file in both.files(both.paper("tiny").artifacts["table2"]):
        file.unlink()
    said = refusal(publish(*options))
    assert "is not as it was committed" in said
    git(*shlex.split(said.partition("set it aside with git ")[2]))
    assert {name: (published / name).read_bytes() for name in files_of(published)} == committed
    assert publish(*options).code == 0


@pytest.mark.parametrize("staged", [False, True])
def test_a_file_that_was_never_committed_is_not_published_with_the_others(
    made, publish, git, published, commit, staged
):
    publish()
    commit()
    new = published / "notes.md"
    new.write_text("new\n")
    if staged:
        git("add", str(new))
    said = refusal(publish())
    assert "results/published/laptop/notes.md is not as it was committed" in said
    git(*shlex.split(said.partition("set it aside with git ")[2]))
    assert not new.exists()
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


def rewritten(path, *changes):
    """Replace words in a file."""
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


@pytest.fixture
def alone(made, publish, commit, checkout):
    """What is published, where nothing was trained."""
    publish()
    shutil.rmtree(checkout / "runs")
    shutil.rmtree(made.results)
    commit()
    return checkout


ARTIFACTS = Path("configs/papers/tiny/artifacts.yaml")


def test_a_new_caption_is_rendered_from_the_published_records_alone(
    alone, publish, published, commit, vitrail
):
    before = {name: (published / name).read_bytes() for name in files_of(published)}
    numbers = [record for record in records_of(published) if record["node"]["kind"] != "rendering"]
    rewritten(alone / ARTIFACTS, ("Mixup is not needed.", "Mixup is not needed here."))
    commit()
    done = publish("--only-render")
    assert done.code == 0, done.err
    assert "not needed here" in (published / "tiny" / "table1.md").read_text()
    assert (published / "tiny" / "table1.csv").read_bytes() == before["tiny/table1.csv"]
    assert [name for name in before if f"  {name}\n" in done.out] == ["tiny/table1.md"]
    kept = [record for record in records_of(published) if record["node"]["kind"] != "rendering"]
    assert kept == numbers
    commit()
    assert vitrail("verify", "--published", "--scale", "laptop").code == 0


@pytest.fixture
def measured_by_other_code(alone, published, commit):
    """The published records say that other code measured than is here."""
    records = records_of(published)
    for record in records:
        if record["node"]["kind"] == "measurement":
            record["code"] = "0" * 16
    write_records(published, records)
    commit()


@pytest.mark.usefixtures("measured_by_other_code")
def test_numbers_of_other_code_keep_the_caption_that_they_had(alone, publish, published, commit):
    before = (published / "tiny" / "table1.md").read_bytes()
    rewritten(alone / ARTIFACTS, ("Mixup is not needed.", "Mixup is not needed here."))
    commit()
    assert publish("--only-render").code == 0
    assert (published / "tiny" / "table1.md").read_bytes() == before


def test_what_is_planned_otherwise_by_now_keeps_the_caption_of_its_numbers(
    alone, publish, published, commit
):
    before = (published / "tiny" / "table1.md").read_bytes()
    rewritten(
        alone / ARTIFACTS,
        ("Mixup is not needed.", "Mixup is not needed here."),
        ("Plain again", "Once more"),
    )
    commit()
    assert publish("--only-render").code == 0
    assert (published / "tiny" / "table1.md").read_bytes() == before


def test_where_nothing_is_published_nothing_is_rendered_again(made, publish):
    assert "has nothing published" in refusal(publish("--only-render"))
    assert "give it without --prune" in refusal(publish("--only-render", "--prune"))
