import pytest

PLAIN, MIXUP, RATIO = ("Plain", "Top-1"), ("Mixup", "Top-1"), ("Plain", "Ratio")
NOT_RUN = {"measured": "", "verdict": "not_run"}


@pytest.fixture
def verify(vitrine, write_results, checkout):
    """Verify cells measured here against published ones; those that the claim needs are there."""
    claimed = {PLAIN: NOT_RUN, MIXUP: NOT_RUN}

    def run(published, ours):
        write_results(claimed | published, folder=checkout / "results" / "published" / "smoke")
        write_results(claimed | ours)
        return vitrine("verify", "--scale", "smoke")

    return run


def test_equal_results_are_verified(verify):
    cells = {PLAIN: {"measured": 80.0}, RATIO: {"measured": 0.5, "verdict": "exact"}}
    done = verify(cells, cells)
    assert done.code == 0
    assert "Verified" in done.out
    assert "Cells that differ" not in done.out


def test_an_exact_cell_that_differs_in_its_last_digit_fails(verify):
    done = verify({RATIO: {"measured": 0.5}}, {RATIO: {"measured": 0.6}})
    assert done.code == 1
    assert "EXACT CELL FAILED" in done.out


def test_an_exact_cell_that_rounds_alike_passes(verify):
    assert verify({RATIO: {"measured": 0.5}}, {RATIO: {"measured": 0.50001}}).code == 0


@pytest.mark.parametrize(("ours", "word"), [(80.5, "within"), (90.0, "differs")])
def test_a_trained_number_is_judged_by_both_spreads(verify, ours, word):
    spread = {"std": 1.0, "n_seeds": 3}
    done = verify({PLAIN: {"measured": 80.0, **spread}}, {PLAIN: {"measured": ours, **spread}})
    assert done.code == 0
    counts = next(line for line in done.out.splitlines() if line.startswith("tiny_table1"))
    assert counts.split() == ["tiny_table1", "1"]
    assert ("Cells that differ" in done.out) == (word == "differs")


def test_without_a_spread_a_different_number_is_listed_and_fails_nothing(verify):
    done = verify({PLAIN: {"measured": 80.0}}, {PLAIN: {"measured": 80.5}})
    assert done.code == 0
    assert "no spread" in done.out
    assert "80.5" in done.out


def test_a_claim_that_held_as_published_and_fails_here_fails(verify):
    published = {PLAIN: {"measured": 80.0}, MIXUP: {"measured": 70.0}}
    done = verify(published, {PLAIN: {"measured": 70.0}, MIXUP: {"measured": 80.0}})
    assert done.code == 1
    assert "claims lost: 1 (tiny/plain-is-better)" in done.out
    done = verify(published, {PLAIN: {"measured": 80.0}, MIXUP: {"measured": 70.0}})
    assert done.code == 0


def test_a_cell_not_run_here_is_said_and_fails_nothing(verify):
    done = verify({RATIO: {"measured": 0.5}}, {RATIO: NOT_RUN})
    assert done.code == 0
    assert "not run here" in done.out


def test_without_published_results_it_says_so(vitrine):
    done = vitrine("verify", "--scale", "smoke")
    assert done.code == 2
    assert "results/published/smoke holds no results" in done.err
