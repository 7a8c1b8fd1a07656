"""``vitrail search`` fills ``searched.csv``, repeats nothing, and the recipes take their rates."""

import csv
import multiprocessing
import os
import time
from functools import partial

import pytest

from replication.cli import search
from replication.config.schema import as_yaml, read_yaml
from replication.config.tuning import FLOORS
from replication.plan.catalog import load_catalog
from vitrail.errors import VitrailError

SEARCHES = [{"rates": [1e-9, 1e-2, 3e-2], "of": {"plain": "plain"}}]


@pytest.fixture
def searched(checkout):
    """The scale searches one recipe of three; the file that it will be found in."""
    folder = checkout / "configs" / "papers" / "tiny"
    path = folder / "scales" / "small.yaml"
    path.write_text(as_yaml({**read_yaml(path), "searches": SEARCHES}))
    return folder / "searched.csv"


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_it_tries_every_rate_then_the_best_twice_as_long_and_judges_the_pixels(searched, vitrail):
    assert vitrail("search", "tiny", "--scale", "small", "--jobs", "2").code == 0
    found = rows(searched)
    floors = [row for row in found if row["recipe"].startswith(FLOORS)]
    assert len(floors) == 3 * 2  # rules, seeds
    once = [row for row in found if row["recipe"] == "plain" and row["length"] == "1"]
    twice = [row for row in found if row["length"] == "2"]
    assert sorted(row["rate"] for row in once) == ["0.01", "0.01", "0.03", "0.03", "1e-09", "1e-09"]
    assert len(twice) == 2
    paper = load_catalog(scale="small").paper("tiny")
    assert {float(row["rate"]) for row in twice} == {paper.recipe("plain").optimizer.lr}
    assert paper.recipe("plain").optimizer.lr > 1e-9
    assert paper.standing("plain").floor
    assert vitrail("search", "tiny", "--scale", "small").out == ""  # nothing is repeated
    assert rows(searched) == found


def test_a_killed_process_ends_the_search_in_a_sentence(tmp_path):
    with pytest.raises(VitrailError, match="with fewer --jobs"), search._processes(1) as pool:
        search._work(pool, [partial(os._exit, 1)], tmp_path / "searched.csv")


def test_a_search_that_is_stopped_does_not_wait_for_its_trials():

    def stopped():
        with search._processes(1) as pool:
            trials = [pool.submit(time.sleep, 300) for _ in range(3)]
            while not trials[0].running():
                time.sleep(0.01)
            raise SystemExit

    start, others = time.monotonic(), multiprocessing.active_children()
    with pytest.raises(SystemExit):
        stopped()
    assert time.monotonic() - start < 100
    trials = [child for child in multiprocessing.active_children() if child not in others]
    for process in trials:  # a process that was ended may still be on its way out
        process.join(100)
    assert not any(process.is_alive() for process in trials)


def test_a_scale_without_searches_says_where_to_write_them(searched, vitrail):
    done = vitrail("search", "tiny", "--scale", "full")
    assert (done.code, done.out) == (2, "")
    assert "scale 'full' of 'tiny' has no searches; name the recipes under searches:" in done.err


def test_a_recipe_that_is_not_searched_is_refused(searched, vitrail):
    done = vitrail("search", "tiny", "mixup", "--scale", "small")
    assert done.code == 2
    assert "recipe 'mixup' is not searched" in done.err
    assert "plain" in done.err
    assert not searched.exists()
