"""Schedules of faults, drawn: each target is made once, or one is told why not, and all ends.

So it is, too, if Snakemake is told to end; then nothing more is submitted.

VITRAIL_SCHEDULES is how many schedules are tried.
"""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cluster.simulated_slurm import NEVER, Node, Slurm, Target
from tests.cluster.simulation import Simulation

SCHEDULES = int(os.environ.get("VITRAIL_SCHEDULES", "50"))
HOUR = 3600
pytestmark = pytest.mark.usefixtures("any_path")
RETRIES = 5
FREE = 5  # sick nodes that a job may meet before that uses up attempts

seconds = st.integers(0, 4 * HOUR)
spans = st.tuples(seconds, st.integers(1, 2 * HOUR)).map(lambda span: (span[0], sum(span)))


@st.composite
def target_needs(draw):
    """What it takes to make a target."""
    return {
        "seconds": draw(st.integers(1, 3 * HOUR)),
        "memory": draw(st.sampled_from([1000, 1000, 1000, 1500, 3900, 10**6])),
        "gpus": draw(st.sampled_from([0, 1, 8])),
        "wrong": draw(st.sampled_from([False] * 9 + [True])),
        "resumes": draw(st.booleans()),
        "held_until": draw(st.sampled_from([0, 0, 0, 100, 5 * HOUR])),
        "crashes": draw(st.sampled_from([0, 0, 0, 1, 2, 7])),
    }


@st.composite
def nodes(draw):
    """Nodes of which some are sick, for a while or for good."""
    made = []
    for number in range(draw(st.integers(1, 6))):
        sick = []
        if draw(st.integers(0, 2)) == 0:
            start, end = draw(spans)
            kind = draw(st.sampled_from(["place", "mute", "launch"]))
            sick.append((start, draw(st.sampled_from([end, NEVER])), kind))
        made.append(Node(f"n{number}", draw(st.integers(1, 8)), sick=sick))
    return made


@st.composite
def clusters(draw):
    """How SLURM is set up, and what befalls it."""
    kinds = st.sampled_from(["fail", "blank", "deaf"])
    silences = draw(st.lists(st.tuples(spans, kinds), max_size=2))
    events = draw(st.lists(st.tuples(seconds, st.sampled_from(["lose", "preempt"])), max_size=8))
    return {
        "submit_limit": draw(st.sampled_from([1, 2, 5, 20, NEVER])),
        "min_job_age": draw(st.sampled_from([2, 30, 60, 300, HOUR])),
        "silences": [(*span, kind) for span, kind in silences],
        "events": events,
        "sacct": draw(st.sampled_from(["absent", "disabled", "works"])),
        "max_minutes": draw(st.sampled_from([60, NEVER])),
        "gpu_type": draw(st.sampled_from([None, "a100"])),
    }


@pytest.mark.slow
@settings(
    max_examples=SCHEDULES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)
@given(
    st.lists(target_needs(), min_size=1, max_size=12),
    nodes(),
    clusters(),
    st.booleans(),
    st.lists(spans, max_size=2),
    st.sampled_from([3, 100]),
    st.one_of(st.just(NEVER), seconds),
)
def test_each_target_is_made_once_or_one_is_told_why_not(
    needs, machines, cluster, requeue, stopped, at_once, told_to_end
):
    with tempfile.TemporaryDirectory() as folder:
        targets = [Target(f"t{number}", Path(folder), **each) for number, each in enumerate(needs)]
        done = Simulation(
            Slurm(targets, machines, **cluster),
            Path(folder),
            retries=RETRIES,
            at_once=at_once,
            stopped=stopped,
            told_to_end=told_to_end,
            requeue=requeue,
            asked={"gpu_model": cluster["gpu_type"]},
        ).run()
    assert not done.waiting
    assert all(job.submitted <= told_to_end for job in done.slurm.jobs.values())
    for job in done.jobs:
        if job in done.ready:  # not begun when Snakemake was told to end
            continue
        target = job.target
        assert target.together <= 1
        if job in done.made:
            assert target.made == 1
            continue
        assert target.made == 0
        assert job.errors
        free = target.endings.count("held") + min(target.endings.count("place"), FREE)
        attempts = len(target.endings) - free
        cannot_be_done = target.wrong or target.memory > 64000
        no_place = all(node.sick for node in machines)
        ended = done.slurm.now >= told_to_end
        assert cannot_be_done or no_place or attempts > RETRIES or ended, target
