"""Rules without a network, against brute force and closed forms."""

import numpy as np
import pytest

from vitrail.measures.floors import floors, majority, nearest


@pytest.fixture
def rows():
    random = np.random.default_rng(0)
    labels = random.integers(4, size=300)
    centres = random.normal(size=(4, 12))
    pixels = (centres[labels] + 0.8 * random.normal(size=(300, 12))).astype(np.float32)
    return pixels[:200], labels[:200], pixels[200:], labels[200:]


def test_neighbours_are_those_of_the_smallest_distance(rows):
    train, _, test, _ = rows
    distances = np.linalg.norm(test[:, None].astype(float) - train[None], axis=2)
    assert (nearest(train, test, 5) == np.argsort(distances, axis=1)[:, :5]).all()


def test_of_equally_many_votes_the_smallest_label_counts():
    assert majority(np.array([[2, 1, 1, 2], [0, 3, 3, 3], [2, 2, 2, 1]]), 4).tolist() == [1, 3, 2]


def test_what_is_counted_is_the_share_of_right_labels(rows):
    train, labels, test, right = rows
    found = floors(train, labels, test, right)
    distances = np.linalg.norm(test[:, None].astype(float) - train[None], axis=2)
    order = np.argsort(distances, axis=1)
    assert found["1-NN"] == pytest.approx(100 * (labels[order[:, 0]] == right).mean())
    votes = [np.bincount(labels[near]).argmax() for near in order[:, :20]]
    assert found["20-NN"] == pytest.approx(100 * (np.array(votes) == right).mean())


def test_regression_finds_a_linear_rule_that_neighbours_miss():
    random = np.random.default_rng(1)
    pixels = random.normal(size=(900, 60)).astype(np.float32)
    labels = (pixels[:, 0] > 0).astype(int)
    found = floors(pixels[:600], labels[:600], pixels[600:], labels[600:])
    assert found["logistic regression"] > 90 > 75 > found["1-NN"]


def test_labels_at_random_leave_every_rule_at_chance(rows):
    train, labels, test, _ = rows
    random = np.random.default_rng(2)
    many = np.concatenate([test] * 8)
    found = floors(train, labels, many, random.integers(4, size=len(many)))
    assert all(15 < score < 35 for score in found.values())
