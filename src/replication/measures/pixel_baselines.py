"""Pixel baselines: classifiers of pixels without a network, with which models are compared.

A model that scores below all of them says little about its architecture.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from PIL import Image

from replication.context import Context, Values
from replication.images.masks import IGNORED
from replication.images.opening import SPLITS, build

NEIGHBOURS = 20
STEPS = 200
BLOCK = 1000
"""The largest number of test rows whose distances to all training rows are in memory at a time."""
SIDE = 32
"""Side in pixels of the squares to which large images, or images of several sizes, are resized."""
EVERY = 4
"""The regression on single pixels reads every fourth row and column of a training mask."""


def pixel_baselines(context: Context, part: Literal["all", "tuning"] = "all") -> Values:
    """Evaluate the pixel baselines on the measure's dataset, or on a `part` of it.

    Images larger than `SIDE` pixels are resized to squares of that side; if images differ in size,
    all are. Images with masks are not resized.

    Returns:
        as `of_images`, or as `of_masks` if the images have masks.
    """
    (info,) = (own.of_part(part) for own in context.datasets)
    (train, labels), (test, right) = (
        _read(build(info, split, context.data_root, context.seed), bool(info.segmentation))
        for split in SPLITS
    )
    if info.segmentation:
        return of_masks([own / 255 for own in train], labels, [own / 255 for own in test], right)
    several = len({own.shape for own in (*train, *test)}) > 1
    rows, others = (
        np.stack([np.ravel(_square(own) if several else own) for own in images])
        for images in (train, test)
    )
    return of_images(*_scaled(rows, labels), *_scaled(others, right))


def _read(images: Any, with_masks: bool) -> tuple[list[np.ndarray], list[Any]]:
    """Return the pixels of images, each (H, W, 3) uint8, and their labels or masks."""
    pixels, labels = [], []
    for at in range(len(images)):
        image, label = images[at]
        large = max(image.size) > SIDE and not with_masks
        pixels.append(_square(np.asarray(image)) if large else np.asarray(image))
        labels.append(label)
    return pixels, labels


def _square(pixels: np.ndarray) -> np.ndarray:
    return np.asarray(Image.fromarray(pixels).resize((SIDE, SIDE)))


def _scaled(rows: np.ndarray, labels: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    return rows.astype(np.float32) / 255, np.array(labels)


def of_images(
    train: np.ndarray, train_labels: np.ndarray, test: np.ndarray, test_labels: np.ndarray
) -> dict[str, float]:
    """Evaluate three classifiers on rows of pixels (N, D) float32 with labels (N,) of 0 .. K - 1.

    Nearest neighbours have the smallest Euclidean distance and one vote each; of labels with
    equally many votes the smallest wins. The logistic regression is on standardised pixels, with
    scikit-learn's default L2 penalty, and stops after at most `STEPS` iterations of L-BFGS.

    Returns:
        accuracy on the test rows in percent, for ``1-NN``, ``20-NN`` and ``logistic regression``.
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
    """Return indices of the `train` rows nearest to each `test` row: (tests, count), in order."""
    squares, order = (train**2).sum(1), []
    for rows in np.array_split(test, -(-len(test) // BLOCK)):
        distances = squares - 2 * rows @ train.T  # squared, without the constant of each row
        order.append(np.argsort(distances, axis=1, kind="stable")[:, :count])
    return np.concatenate(order)


def majority(labels: np.ndarray, classes: int) -> np.ndarray:
    """Return the most frequent label of each row of (N, k); of equally frequent, the smallest."""
    votes = np.stack([(labels == label).sum(1) for label in range(classes)], axis=1)
    found: np.ndarray = votes.argmax(1)
    return found


def _regressed(train: np.ndarray, labels: np.ndarray, test: np.ndarray) -> np.ndarray:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    mean, std = train.mean(0), train.std(0) + 1e-6
    regression = LogisticRegression(max_iter=STEPS, tol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it may stop before convergence
        regression.fit((train - mean) / std, labels)
    found: np.ndarray = regression.predict((test - mean) / std)
    return found


def of_masks(
    train: Sequence[np.ndarray],
    train_masks: Sequence[np.ndarray],
    test: Sequence[np.ndarray],
    test_masks: Sequence[np.ndarray],
) -> dict[str, float]:
    """Evaluate two classifiers that label each pixel by itself.

    Images are (H, W, 3) with values in 0..1, and masks (H, W) with labels 0 .. K - 1 or 255, which
    is ignored. The position of a pixel is that of its centre, from 0 to 1 along each axis, so that
    images may differ in size. ``class by place`` predicts the most frequent class of each position
    in training, on a grid of the size of the first training mask. The logistic regression is on
    colour, position, and their squares and products.

    Returns:
        mIoU in percent, for ``class by place`` and ``logistic regression``.
    """
    by_place = _class_by_place(train_masks)
    rows, labels = _pixels(train, train_masks)
    predicted = _regressed(rows, labels, np.concatenate([_features(image) for image in test]))
    sizes = [mask.size for mask in test_masks]
    regressed = np.split(predicted, np.cumsum(sizes)[:-1])
    rules = {
        "class by place": [_resized(by_place, mask.shape) for mask in test_masks],
        "logistic regression": [
            labels.reshape(mask.shape) for labels, mask in zip(regressed, test_masks, strict=True)
        ],
    }
    return {rule: mean_iou(masks, test_masks) for rule, masks in rules.items()}


def mean_iou(predicted: Sequence[np.ndarray], masks: Sequence[np.ndarray]) -> float:
    """Return the mean IoU in percent, over the classes that are predicted or labelled.

    Areas are summed over all masks before they are divided; pixels labelled 255 are ignored.
    """
    areas = np.zeros((IGNORED, IGNORED))
    for prediction, mask in zip(predicted, masks, strict=True):
        judged = mask != IGNORED
        np.add.at(areas, (prediction[judged], mask[judged]), 1)
    both, either = np.diag(areas), areas.sum(0) + areas.sum(1) - np.diag(areas)
    return 100 * float((both[either > 0] / either[either > 0]).mean())


def _class_by_place(masks: Sequence[np.ndarray]) -> np.ndarray:
    """Return the most frequent class (if equal: the lowest) of each pixel, as the first mask."""
    size = masks[0].shape
    resized = np.stack([_resized(mask, size) for mask in masks])
    classes = resized[resized != IGNORED].max() + 1
    return np.stack([(resized == label).sum(0) for label in range(classes)]).argmax(0)


def _resized(mask: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """Resize a mask: each new pixel takes the label of the old pixel that contains its centre."""
    rows, columns = (
        ((np.arange(new) + 0.5) * old / new).astype(int)
        for old, new in zip(mask.shape, size, strict=True)
    )
    return mask[rows[:, None], columns]


def _pixels(
    images: Sequence[np.ndarray], masks: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return features (N, D) and labels (N,) of every fourth pixel per axis, if not ignored."""
    chosen = np.s_[EVERY // 2 :: EVERY, EVERY // 2 :: EVERY]
    labels = np.concatenate([mask[chosen].ravel() for mask in masks])
    features = [
        _features(image).reshape(*mask.shape, -1)[chosen].reshape(mask[chosen].size, -1)
        for image, mask in zip(images, masks, strict=True)
    ]
    judged = labels != IGNORED
    return np.concatenate(features)[judged], labels[judged]


def _features(image: np.ndarray) -> np.ndarray:
    """Return colour and position of each pixel, their squares and products: (H W, 20) float32."""
    height, width = image.shape[:2]
    y, x = np.meshgrid(
        (np.arange(height) + 0.5) / height, (np.arange(width) + 0.5) / width, indexing="ij"
    )
    own = np.dstack([image, y, x]).reshape(height * width, -1)
    first, second = np.triu_indices(own.shape[1])
    features: np.ndarray = np.hstack([own, own[:, first] * own[:, second]]).astype(np.float32)
    return features
