import json
import subprocess

import pytest

PLAIN, MIXUP = ("Plain", "Top-1"), ("Mixup", "Top-1")


@pytest.fixture
def git(checkout):
    """Git in the checkout, whose first commit holds everything there."""

    def run(*arguments):
        identity = ["-c", "user.name=Nobody", "-c", "user.email=nobody@example.org"]
        command = ["git", *identity, *arguments]
        done = subprocess.run(command, cwd=checkout, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    (checkout / ".gitignore").write_text("/runs/\n/results/*\n!/results/published/\n")
    (checkout / "README.md").write_text("Read me.\n")
    run("init", "--quiet")
    run("add", ".")
    run("commit", "--quiet", "-m", "Begin")
    return run


@pytest.fixture
def trained(catalog):
    """Leave a run's provenance in the folder of each seed; returns the cell measured on it."""

    def leave(commits, name="plain"):
        run = catalog().paper("tiny").run(name)
        for seed, commit in zip(run.seeds, commits, strict=True):
            run.seed_folder(seed).mkdir(parents=True, exist_ok=True)
            facts = {"device": "cpu: a processor, 1 thread", "commit": commit}
            (run.seed_folder(seed) / "provenance.json").write_text(json.dumps(facts))
        return {"recipe_hash": run.recipe.hash}

    return leave


@pytest.fixture
def published(checkout):
    return checkout / "results" / "published" / "smoke"


def refusal(done):
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    return done.err


def test_results_of_a_clean_commit_are_copied_whole(vitrine, git, write_results, published):
    head = git("rev-parse", "HEAD")
    csv = write_results({PLAIN: {"commit": head}})
    done = vitrine("publish", "--scale", "smoke")
    assert done.code == 0, done.err
    files = sorted(file.name for file in published.rglob("*") if file.is_file())
    assert files == ["table1.csv", "table1.md", "table1.tex"]
    assert (published / "tiny" / "table1.csv").read_text() == csv.read_text()
    assert "tiny_table2: not built" in done.out
    assert [path.name for path in published.parent.iterdir()] == ["smoke"]


def test_a_stale_file_of_the_scale_is_removed_and_other_scales_stay(
    vitrine, git, write_results, published
):
    write_results({PLAIN: {"commit": git("rev-parse", "HEAD")}})
    stale, other = published / "tiny" / "old.csv", published.parent / "full" / "tiny" / "kept.csv"
    for path in (stale, other):
        path.parent.mkdir(parents=True)
        path.write_text("x")
    assert (
        f"Removed {stale.relative_to(published.parents[2])}"
        in vitrine("publish", "--scale", "smoke").out
    )
    assert not stale.exists()
    assert other.exists()


def test_changed_files_are_refused_but_the_published_ones_are_not(
    vitrine, git, write_results, published, checkout
):
    write_results({PLAIN: {"commit": git("rev-parse", "HEAD")}})
    vitrine("publish", "--scale", "smoke")
    git("add", ".")
    git("commit", "--quiet", "-m", "Publish")
    (published / "tiny" / "table1.md").write_text("changed\n")
    assert vitrine("publish", "--scale", "smoke").code == 0
    (checkout / "README.md").write_text("Changed.\n")
    assert "README.md differs from the last commit" in refusal(
        vitrine("publish", "--scale", "smoke")
    )


def test_a_number_measured_with_uncommitted_changes_is_refused(vitrine, git, write_results):
    head = git("rev-parse", "HEAD")
    write_results({PLAIN: {"commit": head}, MIXUP: {"commit": f"{head}-dirty"}})
    text = refusal(vitrine("publish", "--scale", "smoke"))
    assert "results/smoke/tiny/table1.csv, row 'Mixup'" in text
    assert "uncommitted" in text


@pytest.mark.parametrize("name", ["new.py", "configs/papers/new/notes.md"])
def test_a_new_file_is_refused_unless_git_ignores_it(vitrine, git, write_results, checkout, name):
    git("config", "status.showUntrackedFiles", "no")
    write_results({PLAIN: {"commit": git("rev-parse", "HEAD")}})
    (checkout / name).parent.mkdir(exist_ok=True)
    (checkout / name).write_text("{}\n")
    assert f"{name} differs from the last commit or is not in it" in refusal(
        vitrine("publish", "--scale", "smoke")
    )
    (checkout / ".git" / "info" / "exclude").write_text(f"{name}\n")
    assert vitrine("publish", "--scale", "smoke").code == 0


def test_results_outside_of_the_repository_do_not_hide_a_change(
    vitrine, git, write_results, checkout, tmp_path_factory
):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    write_results({PLAIN: {"commit": git("rev-parse", "HEAD")}}, elsewhere / "smoke")
    done = vitrine("publish", "--scale", "smoke", "--results", elsewhere)
    assert done.code == 0, done.err
    assert (elsewhere / "published" / "smoke" / "tiny" / "table1.csv").is_file()
    (checkout / "README.md").write_text("Changed.\n")
    assert "README.md differs" in refusal(
        vitrine("publish", "--scale", "smoke", "--results", elsewhere)
    )


def test_a_failing_git_is_told_and_nothing_is_published(
    vitrine, git, write_results, published, checkout
):
    write_results({PLAIN: {"commit": git("rev-parse", "HEAD")}})
    (checkout / ".git" / "index").write_text("damaged")
    assert "git status failed" in refusal(vitrine("publish", "--scale", "smoke"))
    assert not published.exists()


def test_weights_trained_at_clean_commits_of_the_same_code_are_published(
    vitrine, git, write_results, trained, checkout
):
    first = git("rev-parse", "HEAD")
    (checkout / "README.md").write_text("Corrected.\n")
    git("commit", "--quiet", "-am", "Correct the README")
    head = git("rev-parse", "HEAD")
    write_results({PLAIN: {"commit": head, **trained([f"{first}+{head}"])}})
    done = vitrine("publish", "--scale", "smoke")
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("commit", "fault"),
    [
        ("{head}-dirty", "with uncommitted changes"),
        ("{head}-dirty+{head}", "with uncommitted changes"),
        ("{head}+unknown", "its commit unknown is no ancestor of HEAD"),
        (None, "does not say at which commit"),
    ],
)
def test_weights_trained_by_other_code_are_refused_though_measured_at_head(
    vitrine, git, write_results, trained, published, catalog, commit, fault
):
    head = git("rev-parse", "HEAD")
    cell = trained([commit and commit.format(head=head)])
    write_results({PLAIN: {"commit": head, **cell}})
    text = refusal(vitrine("publish", "--scale", "smoke"))
    folder = catalog().paper("tiny").run("plain").folder
    assert f"{folder}/seed0: " in text
    assert fault in text
    assert f"delete {folder} and train again" in text
    assert not published.exists()


def test_every_seed_behind_a_number_must_be_there(vitrine, git, write_results, trained, catalog):
    head = git("rev-parse", "HEAD")
    cell = trained([head])
    run = catalog().paper("tiny").run("plain")
    (run.seed_folder(0) / "provenance.json").unlink()
    write_results({PLAIN: {"commit": head, **cell}})
    text = refusal(vitrine("publish", "--scale", "smoke"))
    assert f"{run.seed_folder(0)} has no provenance.json" in text


def test_the_weights_that_a_fine_tuning_starts_from_must_be_of_the_code_too(
    vitrine, git, write_results, trained, fine_tuning
):
    git("commit", "--quiet", "-am", "Tune")
    head = git("rev-parse", "HEAD")
    cell = trained([head], "tuned")
    write_results({("Tuned", "Top-1"): {**cell, "commit": head}}, artifact="table2")
    assert "plain-" in refusal(vitrine("publish", "--scale", "smoke"))
    trained([head], "plain")
    assert vitrine("publish", "--scale", "smoke").code == 0


def test_a_recipes_own_number_needs_no_weights(vitrine, git, write_results, catalog, fine_tuning):
    git("commit", "--quiet", "-am", "Tune")
    size = {
        "recipe_hash": catalog().paper("tiny").run("tuned").recipe.hash,
        "commit": git("rev-parse", "HEAD"),
    }
    write_results({("Tuned", "Size"): size}, artifact="table2")
    done = vitrine("publish", "--scale", "smoke")
    assert done.code == 0, done.err


def test_a_run_that_no_number_comes_from_yet_is_no_obstacle(vitrine, git, write_results, trained):
    head = git("rev-parse", "HEAD")
    not_run = {"measured": "", "verdict": "not_run", "n_seeds": 0}
    trained([f"{head}-dirty"], name="mixup")
    write_results({PLAIN: {"commit": head, **trained([head])}, MIXUP: not_run})
    done = vitrine("publish", "--scale", "smoke")
    assert done.code == 0, done.err


def test_a_number_of_a_recipe_that_has_changed_since_is_refused(vitrine, git, write_results):
    write_results({PLAIN: {"commit": git("rev-parse", "HEAD"), "recipe_hash": "0123abcd"}})
    text = refusal(vitrine("publish", "--scale", "smoke"))
    assert "tiny_table1 was measured on recipe 0123abcd" in text


def test_a_number_without_a_commit_is_refused(vitrine, git, write_results, published):
    write_results({PLAIN: {}})
    assert "row 'Plain'" in refusal(vitrine("publish", "--scale", "smoke"))
    assert not published.exists()


def test_an_ancestor_passes_as_long_as_no_code_has_changed_since(
    vitrine, git, write_results, checkout
):
    write_results({PLAIN: {"commit": git("rev-parse", "HEAD")}})
    (checkout / "README.md").write_text("Corrected.\n")
    git("commit", "--quiet", "-am", "Correct the README")
    assert vitrine("publish", "--scale", "smoke").code == 0
    recipes = checkout / "configs" / "papers" / "tiny" / "recipes.yaml"
    recipes.write_text(recipes.read_text() + "# changed\n")
    git("commit", "--quiet", "-am", "Change a recipe")
    text = refusal(vitrine("publish", "--scale", "smoke"))
    assert "configs/papers/tiny/recipes.yaml has changed" in text


def test_a_commit_that_is_no_ancestor_is_refused(vitrine, git, write_results):
    write_results({PLAIN: {"commit": "0" * 40}})
    assert "no ancestor of HEAD" in refusal(vitrine("publish", "--scale", "smoke"))


def test_a_cell_that_was_not_run_is_published_and_reported(vitrine, git, write_results):
    head = git("rev-parse", "HEAD")
    not_run = {"measured": "", "verdict": "not_run", "n_seeds": 0}
    write_results({PLAIN: {"commit": head}, MIXUP: not_run})
    done = vitrine("publish", "--scale", "smoke")
    assert done.code == 0
    assert "tiny_table1: 1 cell not run." in done.out


def test_outside_of_a_repository_it_says_so(vitrine, write_results):
    write_results({PLAIN: {"commit": "abc"}})
    assert "is no git repository" in refusal(vitrine("publish", "--scale", "smoke"))
