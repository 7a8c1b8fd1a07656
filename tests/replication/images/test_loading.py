import itertools
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from replication.images.loading import (
    EvaluationSamples,
    Relabelled,
    TrainingSamples,
    epoch_order,
    micro_batches,
)
from replication.images.opening import build
from replication.images.transforms import eval_transform, train_transform
from vitrail.errors import VitrailError
from vitrail.measures.loading import eval_loader

STEPS = 4
LOUD = {
    "auto_augment": "rand-m9-mstd0.5-inc1",
    "erase_prob": 0.5,
    "hflip": 0.5,
}  # draws from python's, numpy's and torch's generators


@pytest.fixture(scope="module")
def samples(recipe, digits) -> TrainingSamples:
    transform = train_transform(recipe(**LOUD), digits)
    return TrainingSamples(build(digits, "train", Path("nowhere")), transform, seed=5)


def draw(samples, start=0, stop=STEPS, **options):
    return list(micro_batches(samples, size=8, micro=2, start=start, stop=stop, **options))


def assert_same(left, right):
    assert [(batch.step, batch.index) for batch in left] == [
        (batch.step, batch.index) for batch in right
    ]
    for a, b in zip(left, right, strict=True):
        assert torch.equal(a.images, b.images)
        assert torch.equal(a.labels, b.labels)


def test_workers_give_bitwise_the_samples_of_one_process(samples):
    assert_same(draw(samples, workers=2), draw(samples, workers=0))


def test_starting_at_a_step_equals_skipping_to_it(samples):
    assert_same(draw(samples, start=2), [batch for batch in draw(samples) if batch.step >= 2])


def test_starting_in_a_later_epoch_equals_skipping_to_it(samples):
    samples = TrainingSamples(torch.utils.data.Subset(samples.dataset, range(20)), len, seed=5)
    samples.transform = np.array  # the raw 8x8 scan
    everything = draw(samples, stop=7)  # two steps an epoch
    for start in range(7):
        assert_same(draw(samples, start=start, stop=7), [b for b in everything if b.step >= start])


def test_processes_share_the_micro_batches_of_one(samples):
    ranks = [draw(samples, rank=rank, world=2) for rank in range(2)]
    together = sorted(itertools.chain(*ranks), key=lambda batch: (batch.step, batch.index))
    assert_same(together, draw(samples))


def test_a_sample_does_not_depend_on_what_was_fetched_before_it(samples):
    alone, label = samples[3, 17]
    (_, (among, _)) = samples.__getitems__([(0, 4), (3, 17)])
    assert torch.equal(alone, among)
    assert label == samples.dataset[17][1]


def test_a_sample_changes_with_epoch_and_with_seed(samples):
    other = TrainingSamples(samples.dataset, samples.transform, seed=6)
    image = samples[0, 17][0]
    assert not torch.equal(image, samples[1, 17][0])
    assert not torch.equal(image, other[0, 17][0])


def test_fetching_leaves_the_global_generators_untouched(samples):
    def states():
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    before = states()
    draw(samples)
    assert states() == before


def test_a_failing_transform_leaves_the_global_generators_untouched(samples):
    def fail(image):
        raise OSError(torch.rand(1))

    before = torch.get_rng_state()
    with pytest.raises(OSError, match="tensor"):
        TrainingSamples(samples.dataset, fail, seed=0)[0, 0]
    assert torch.equal(torch.get_rng_state(), before)


def test_every_image_is_seen_once_in_an_epoch_but_for_the_incomplete_batch():
    pairs = [(np.zeros(1), index) for index in range(21)]
    batches = draw(TrainingSamples(pairs, torch.tensor, seed=0), stop=4)
    for epoch in (batches[:8], batches[8:]):
        seen = torch.cat([batch.labels for batch in epoch]).tolist()
        assert len(set(seen)) == len(seen) == 16


def test_repeated_images_have_views_of_their_own_in_one_batch(samples):
    repeated = TrainingSamples(samples.dataset, samples.transform, seed=5, repeats=2)
    first = draw(repeated, stop=1)
    order = epoch_order(len(samples), seed=5, epoch=0)[:4]
    labels = torch.cat([batch.labels for batch in first])
    assert labels.tolist() == [samples.dataset[int(order[i])][1] for i in (0, 2, 0, 2, 1, 3, 1, 3)]
    for one, other in (first[:2], first[2:]):  # views of an image, in neighbouring micro-batches
        assert not torch.equal(one.images, other.images)
    assert torch.equal(first[1].images[0], repeated[0, int(order[0]), 1][0])


def test_an_epoch_of_repeated_images_takes_its_share_of_them():
    pairs = [(np.zeros(1), index) for index in range(24)]
    batches = draw(TrainingSamples(pairs, torch.tensor, seed=0, repeats=3), stop=3)
    seen = torch.cat([batch.labels for batch in batches]).tolist()
    order = epoch_order(24, seed=0, epoch=0)
    assert sorted(seen) == sorted(3 * order[:8].tolist())


def test_repeated_images_resume_and_are_shared_as_others(samples):
    samples = TrainingSamples(samples.dataset, samples.transform, seed=5, repeats=3)
    assert_same(draw(samples, start=2), [batch for batch in draw(samples) if batch.step >= 2])
    ranks = [draw(samples, rank=rank, world=2) for rank in range(2)]
    together = sorted(itertools.chain(*ranks), key=lambda batch: (batch.step, batch.index))
    assert_same(together, draw(samples))


@pytest.mark.parametrize("repeats", [1, 3])
def test_a_short_last_batch_is_shared_by_its_micro_batches(samples, repeats):
    dataset = torch.utils.data.Subset(samples.dataset, range(20))
    samples = TrainingSamples(dataset, samples.transform, seed=5, repeats=repeats)
    options = {"size": 8, "micro": 4, "start": 0, "stop": 6, "drop_last": False}
    batches = list(micro_batches(samples, **options))
    assert [len(batch.labels) for batch in batches] == 2 * [4, 4, 4, 4, 2, 2]
    if repeats == 1:
        first = torch.cat([batch.labels for batch in batches[:6]])
        every = torch.tensor([label for _, label in dataset])
        assert torch.equal(first, every[epoch_order(20, 5, 0)])
    later = list(micro_batches(samples, **options | {"start": 2}))
    assert_same(later, batches[4:])
    whole = list(micro_batches(samples, **options | {"stop": 2, "drop_last": True}))
    assert_same(whole, batches[:4])


def test_the_order_of_an_epoch_depends_on_seed_and_epoch_alone():
    order = epoch_order(100, seed=1, epoch=2)
    assert sorted(order) == list(range(100))
    assert (order == epoch_order(100, seed=1, epoch=2)).all()
    assert (order != epoch_order(100, seed=1, epoch=3)).any()
    assert (order != epoch_order(100, seed=2, epoch=1)).any()
    # Pinned: another value here means that interrupted runs cannot be resumed.
    assert epoch_order(8, seed=0, epoch=0).tolist() == [1, 0, 7, 4, 3, 6, 2, 5]


def test_processes_that_cannot_share_a_step_equally_are_refused(samples):
    with pytest.raises(VitrailError, match="3 processes cannot share the 4 micro-batches"):
        draw(samples, world=3)


@pytest.mark.parametrize("workers", [0, 2])
def test_evaluation_sees_every_image_once_in_order(recipe, digits, workers):
    dataset = build(digits, "val", Path("nowhere"))
    loader = eval_loader(EvaluationSamples(dataset, eval_transform(recipe(), digits)), 250, workers)
    batches = list(loader)
    assert [tuple(images.shape) for images, _ in batches] == [
        (250, 3, 28, 28),
        (250, 3, 28, 28),
        (99, 3, 28, 28),
    ]
    assert torch.cat([labels for _, labels in batches]).tolist() == dataset.labels.tolist()


@pytest.mark.parametrize(("device", "pinned"), [("cpu", False), ("cuda:1", True)])
def test_batches_for_a_gpu_are_pinned(digits, device, pinned):
    assert (
        eval_loader(build(digits, "val", Path("nowhere")), 250, device=device).pin_memory == pinned
    )


def test_shuffled_labels_are_the_same_labels_in_another_order_of_each_seed(digits):
    plain = build(digits, "train", Path("nowhere"))
    labels = [plain[at][1] for at in range(len(plain))]
    drawn = {}
    for seed in (0, 1):
        shuffled = Relabelled(plain, seed)
        drawn[seed] = [shuffled[at][1] for at in range(len(shuffled))]
        assert np.array_equal(np.array(shuffled[7][0]), np.array(plain[7][0]))
        assert sorted(drawn[seed]) == sorted(labels)
        agreeing = np.mean(np.array(drawn[seed]) == labels)
        assert agreeing == pytest.approx(0.1, abs=0.04)  # one of ten classes
    assert drawn[0] != drawn[1]
    assert [Relabelled(plain, 1)[at][1] for at in range(20)] == drawn[1][:20]
