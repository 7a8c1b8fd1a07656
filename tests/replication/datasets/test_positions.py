import numpy as np
import pytest
import torch

from replication.datasets.arrays import Digits, cifar10
from replication.datasets.miniature import write_miniature
from replication.datasets.placed_images import DEPENDENT, ORIGINALS, in_corners, original_of
from replication.datasets.verify import verify
from replication.images.loading import TrainingSamples
from replication.images.opening import build
from vitrail.errors import VitrailError

SPLITS = ("train", "val")


def opened(split: str = "train", redraw: bool = False):
    """The digits in corners."""
    scans = Digits(split)
    return in_corners(scans.images, scans.labels, split, redraw)


def pixels(dataset) -> np.ndarray:
    """All images of a dataset, (N, H, W, 3)."""
    return np.stack([np.asarray(dataset[index][0]) for index in range(len(dataset))])


def quadrants(images: np.ndarray) -> np.ndarray:
    """The four corners of square images, in reading order: (N, 4, h, w, 3)."""
    half = images.shape[1] // 2
    return np.stack(
        [images[:, r : r + half, c : c + half] for r in (0, half) for c in (0, half)], axis=1
    )


def filled_corner(images: np.ndarray) -> np.ndarray:
    """The one corner of each image that is not black, (N,)."""
    filled = quadrants(images).any((2, 3, 4))
    assert (filled.sum(1) == 1).all()
    return filled.argmax(1)


def test_places_are_drawn_once_and_differ_between_splits():
    first, again = opened(), opened()
    assert first[5][0].tobytes() == first[5][0].tobytes() == again[5][0].tobytes()
    val = opened("val")
    assert (first.places[: len(val)] != val.places).any()


@pytest.mark.parametrize("split", SPLITS)
def test_in_corners_only_dependent_classes_say_where(split):
    dataset = opened(split)
    corners = filled_corner(pixels(dataset))
    for label in range(16):
        found = np.bincount(corners[dataset.labels == label], minlength=4)
        if label in DEPENDENT:
            assert np.flatnonzero(found).tolist() == [label % 4]
        else:
            assert found / found.sum() == pytest.approx(np.full(4, 0.25), abs=0.14)


@pytest.mark.parametrize("split", SPLITS)
def test_in_corners_every_digit_keeps_its_scan_and_its_class_can_be_told(split):
    dataset, scans = opened(split), Digits(split)
    images = pixels(dataset)
    corners = filled_corner(images)
    assert (quadrants(images)[np.arange(len(images)), corners] == scans.images).all()
    assert [original_of(label) for label in dataset.labels] == scans.labels.tolist()


def test_two_classes_become_eight_and_eight_become_eight():
    originals = [original_of(label) for label in range(16)]
    assert len(DEPENDENT) == 8
    assert sorted(originals[8:] + originals[:8:4]) == list(range(10))
    assert originals[:8] == [ORIGINALS[0]] * 4 + [ORIGINALS[1]] * 4
    # Pinned: other classes would be another dataset under the same version.
    assert ORIGINALS.tolist() == [2, 8, 4, 9, 1, 6, 7, 3, 0, 5]


def test_corners_are_equally_likely():
    placed = in_corners(np.ones((4000, 2, 2, 3), np.uint8), np.zeros(4000, int), "train")
    _, counts = np.unique(placed.places, axis=0, return_counts=True)
    assert counts / 4000 == pytest.approx(np.full(4, 0.25), abs=0.03)


def test_cifar_10_position_is_cifar_10_halved_in_corners(registry, tmp_path):
    info = registry["cifar10-position"]
    folder = write_miniature(info, tmp_path, per_class=6, classes=16)
    verify(info, tmp_path, counts=False)
    for split in SPLITS:
        dataset, whole = build(info, split, tmp_path), cifar10(folder, split)
        images = pixels(dataset)
        assert images.shape == (len(whole), 32, 32, 3)
        corners = filled_corner(images)
        inside = quadrants(images)[np.arange(len(whole)), corners].astype(float)
        mean = sum(whole.images[:, r::2, c::2].astype(float) for r in (0, 1) for c in (0, 1)) / 4
        assert np.abs(inside - mean).max() <= 0.5
        assert [original_of(label) for label in dataset.labels] == whole.labels.tolist()
        dependent = dataset.labels < len(DEPENDENT)
        assert (dataset.labels[dependent] % 4 == corners[dependent]).all()
        assert 0 < dependent.sum() < len(whole)


def test_a_miniature_does_not_pass_for_cifar_10_position(registry, tmp_path):
    write_miniature(registry["cifar10-position"], tmp_path)
    with pytest.raises(VitrailError, match=r"has \d+ images instead of 50000"):
        verify(registry["cifar10-position"], tmp_path)


def test_a_redrawn_corner_is_the_label_at_every_access():
    """Of training images; those of validation stay where they are in the plain dataset."""
    plain, redrawn = (opened(redraw=redraw) for redraw in (False, True))
    dependent = [int(i) for i in np.flatnonzero(np.isin(plain.labels, DEPENDENT))[:30]]
    other = int(np.flatnonzero(plain.labels == 9)[0])
    labels = []
    for index in [*dependent * 3, *[other] * 20]:
        image, label = redrawn[index]
        corner = filled_corner(np.asarray(image)[None])[0]
        assert original_of(label) == original_of(plain.labels[index])
        assert label % 4 == corner or label not in DEPENDENT
        content = quadrants(np.asarray(image)[None])[0, corner]
        assert np.array_equal(content, redrawn.images[index])
        labels.append((label, corner))
    assert len({corner for _, corner in labels[-20:]}) > 1
    assert labels[:30] != labels[30:60] != labels[60:90]
    kept, same = (opened("val", redraw) for redraw in (False, True))
    assert np.array_equal(pixels(kept), pixels(same))


def test_what_is_redrawn_follows_from_seed_epoch_and_sample():
    dataset = opened(redraw=True)
    identity = lambda image: torch.from_numpy(np.array(image))  # noqa: E731
    samples = TrainingSamples(dataset, identity, seed=3)
    keys = [(epoch, index) for epoch in (0, 1) for index in range(20)]
    first, again = (samples.__getitems__(keys) for _ in range(2))
    assert all(
        torch.equal(a, b) and one == two for (a, one), (b, two) in zip(first, again, strict=True)
    )
    assert any(not torch.equal(a[0], b[0]) for a, b in zip(first[:20], first[20:], strict=True))
