"""What classifiers without a network get from pixels: the least that a trained model must beat.

A model that is below all of them says little about what its architecture can do.
"""

from __future__ import annotations

import numpy as np

NEIGHBOURS = 20
STEPS = 200


def floors(
    train: np.ndarray, train_labels: np.ndarray, test: np.ndarray, test_labels: np.ndarray
) -> dict[str, float]:
    """Judge three rules on rows of pixels (N, D) float32 with labels (N,) of 0 .. K - 1.

    Neighbours are those of the smallest Euclidean distance, and each has one vote; of equally many
    votes the smallest label counts. The logistic regression is on standardised pixels, with weights
    decayed as for one image of each class.

    Returns:
        Percent of the test rows that are right, by the rule: ``1-NN``, ``20-NN`` and ``logistic
        regression``.
    """
    order = nearest(train, test, NEIGHBOURS)
    neighbours = train_labels[order]
    predicted = {
        "1-NN": neighbours[:, 0],
        "20-NN": majority(neighbours, int(train_labels.max()) + 1),
        "logistic regression": _regressed(train, train_labels, test),
    }
    return {rule: 100 * float((labels == test_labels).mean()) for rule, labels in predicted.items()}


def nearest(train: np.ndarray, test: np.ndarray, count: int) -> np.ndarray:
    """The rows of `train` that lie nearest to each of `test`: (tests, count), the nearest first."""
    squares = (train**2).sum(1)
    distances = squares - 2 * test @ train.T  # but for what is the same for all of a row
    order: np.ndarray = np.argsort(distances, axis=1, kind="stable")[:, :count]
    return order


def majority(labels: np.ndarray, classes: int) -> np.ndarray:
    """The most frequent label of each row of (N, k), of equally frequent ones the smallest."""
    votes = np.stack([(labels == label).sum(1) for label in range(classes)], axis=1)
    found: np.ndarray = votes.argmax(1)
    return found


def _regressed(train: np.ndarray, labels: np.ndarray, test: np.ndarray) -> np.ndarray:
    from sklearn.linear_model import LogisticRegression

    mean, std = train.mean(0), train.std(0) + 1e-6
    regression = LogisticRegression(max_iter=STEPS, tol=1e-3)
    found: np.ndarray = regression.fit((train - mean) / std, labels).predict((test - mean) / std)
    return found
