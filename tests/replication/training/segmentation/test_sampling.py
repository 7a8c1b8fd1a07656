"""Draws are counted: they depend on the seed and their number, on nothing else."""

from itertools import islice

import vitrail.segmentation  # noqa: F401  # isort: skip
import numpy as np
import pytest

from replication.training.segmentation import sampling
from replication.training.segmentation.sampling import CountedDataset, CountedSampler


@pytest.fixture
def sampler(monkeypatch):
    def sampler(rank, world, batch_size):
        monkeypatch.setattr(sampling, "get_dist_info", lambda: (rank, world))
        return CountedSampler([], batch_size)

    return sampler


def test_processes_share_each_step_of_one_process(sampler):
    alone = list(islice(sampler(0, 1, 6), 24))
    assert alone == list(range(24))
    steps = [list(islice(sampler(rank, 3, 2), 8)) for rank in range(3)]
    together = [n for step in range(4) for share in steps for n in share[2 * step : 2 * step + 2]]
    assert together == alone


def test_a_resumed_sampler_goes_on_where_it_would_have_been(sampler):
    whole, resumed = sampler(1, 2, 3), sampler(1, 2, 3)
    resumed.skip(9)
    assert list(islice(resumed, 6)) == list(islice(whole, 9, 15))


class Noise:
    """Images that are their number and a random one."""

    metainfo = {}

    def __len__(self):
        return 5

    def __getitem__(self, index):
        return index, np.random.random()


@pytest.fixture
def noise(monkeypatch):
    monkeypatch.setattr(sampling.DATASETS, "build", lambda config: Noise())
    return CountedDataset({}, seed=3)


def test_every_epoch_shows_every_image_once_in_another_order(noise):
    epochs = [[noise[5 * epoch + n][0] for n in range(5)] for epoch in range(4)]
    assert all(sorted(epoch) == list(range(5)) for epoch in epochs)
    assert len(set(map(tuple, epochs))) > 1


def test_a_draw_depends_on_its_number_and_the_seed_alone(noise, monkeypatch):
    forwards = [noise[n] for n in range(12)]
    assert [noise[n] for n in reversed(range(12))] == forwards[::-1]
    assert len({value for _, value in forwards}) == 12
    assert [CountedDataset({}, seed=4)[n] for n in range(12)] != forwards
