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

    (checkout / ".gitignore").write_text("/results/*\n!/results/published/\n")
    (checkout / "README.md").write_text("Read me.\n")
    run("init", "--quiet")
    run("add", ".")
    run("commit", "--quiet", "-m", "Begin")
    return run


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
