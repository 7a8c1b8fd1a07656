"""The patch probes' protocol, step by step against brute force, and what they keep in memory."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import jaccard_score
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import TensorWeakRef

from replication.context import Trained
from replication.images.masks import IGNORED
from replication.measures.resume import keeping
from replication.papers.octic.dinov2 import feature_classifiers as neighbours
from replication.papers.octic.dinov2 import patch_probes
from replication.papers.octic.dinov2.patch_probes import (
    mean_iou,
    patch_labels,
    patch_segmentation,
    standardize,
    votes_by_pixel,
)
from vitrail.errors import VitrailError

SIDE, PATCH, CLASSES = 16, 4, 3
CHOICES = {"strengths": (0.01, 1.0), "neighbours": (1, 3), "iterations": 50}


class Scenes:
    """Images of grey patches with noise, and masks of three classes with an ignored corner.

    The last column of a patch shows the next class.
    """

    def __init__(self, split, count=30):
        random = np.random.RandomState(split == "train")
        kinds = random.randint(CLASSES, size=(count, SIDE // PATCH, SIDE // PATCH))
        masks = kinds.repeat(PATCH, 1).repeat(PATCH, 2)
        noise = random.randint(20, size=(*masks.shape, 3))
        self.images = (70 * masks[..., None] + noise).astype(np.uint8)
        self.masks = masks.astype(np.uint8)
        self.masks[:, :, PATCH - 1 :: PATCH] = (self.masks[:, :, PATCH - 1 :: PATCH] + 1) % CLASSES
        self.masks[:, :PATCH, :PATCH] = IGNORED

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return Image.fromarray(self.images[index]), self.masks[index]


class Pixels(nn.Module):
    """Tokens are projections of a patch's pixels, each channel multiplied by a number."""

    num_prefix_tokens = 1

    def __init__(self, width=24, scales=()):
        super().__init__()
        random = torch.Generator().manual_seed(0)
        self.project = nn.Conv2d(3, width, PATCH, PATCH, bias=False)
        self.project.weight.data = torch.randn(self.project.weight.shape, generator=random)
        self.scales = torch.ones(width)
        self.scales[: len(scales)] = torch.tensor(scales)

    def forward_features(self, images):
        tokens = self.project(images).flatten(2).transpose(1, 2) * self.scales
        return torch.cat([tokens[:, :1], tokens], dim=1)


@pytest.fixture
def judged(monkeypatch):
    """Make a measure's argument of a model; `Scenes` are what is opened."""
    monkeypatch.setattr(patch_probes, "build", lambda info, split, root, seed: Scenes(split))
    data = SimpleNamespace(image_size=SIDE, normalization="inception", interpolation="nearest")
    info = SimpleNamespace(name="scenes", classes=CLASSES)

    def make(model, seed=0, folder=Path()):
        recipe = SimpleNamespace(data=data)
        return Trained("cpu", Path(), seed, recipe, info, model.eval(), folder=folder)

    return make


def test_a_channel_of_another_scale_changes_no_score(judged):
    plain = patch_segmentation(judged(Pixels()), **CHOICES)
    scaled = patch_segmentation(judged(Pixels(scales=[1000.0, 1.0, 0.001])), **CHOICES)
    assert scaled == pytest.approx(plain, abs=0.2)
    assert plain["linear"] > 50
    assert plain["knn"] > 50


def test_patches_that_are_not_finite_are_refused(judged):
    with pytest.raises(VitrailError, match="features are not finite"):
        patch_segmentation(judged(Pixels(scales=[float("nan")])), **CHOICES)


def test_features_are_standardised_as_by_scikit_learn(monkeypatch):
    monkeypatch.setattr(patch_probes, "ROWS", 7)
    random = np.random.RandomState(0)
    features = random.randn(40, 4) * [1, 1000, 0.01, 0] + [0, 5, -3, 0.1]
    wanted = StandardScaler().fit(features[:30]).transform(features)
    found = torch.from_numpy(features.copy())
    standardize(found[:30], [found])
    assert found.numpy() == pytest.approx(wanted, abs=1e-12)


def test_each_pixel_takes_the_commonest_of_its_neighbours_values(monkeypatch):
    monkeypatch.setattr(patch_probes, "QUERIES", 2)
    random = np.random.RandomState(0)
    pixels = random.choice([0, 1, 2, IGNORED], size=(20, 9)).astype(np.uint8)
    near = np.stack([random.choice(20, size=4, replace=False) for _ in range(5)])
    wanted = []
    for rows in near:
        counts = [Counter(pixels[rows, place].tolist()) for place in range(9)]
        wanted.append([min(c, key=lambda value: (-c[value], value)) for c in counts])
    found = votes_by_pixel(torch.from_numpy(pixels), torch.from_numpy(near))
    assert found.tolist() == wanted


def test_neighbours_tell_pixels_of_a_patch_apart(judged):
    """One class for all of a patch gets its last column wrong."""
    values = patch_segmentation(judged(Pixels()), **CHOICES)
    assert values["knn"] > 90
    assert 50 < values["linear"] < 65


def test_a_patch_has_the_label_of_most_of_its_pixels():
    pixels = [[1, 1, 1, 3], [2, IGNORED, IGNORED, IGNORED], [4, 4, 6, 6], [5, 0, 5, 5]]
    assert patch_labels(torch.tensor(pixels, dtype=torch.uint8)).tolist() == [1, IGNORED, 4, 5]


@pytest.mark.parametrize("values", [[0, 1, 2], [0, 1, IGNORED]])
def test_mean_iou_is_scikit_learns(values):
    random = np.random.RandomState(0)
    truth = random.choice([0, 1, IGNORED], size=(30, 4)).astype(np.uint8)
    predicted = random.choice(values, size=(30, 4)).astype(np.uint8)
    seen = truth != IGNORED
    wanted = 100 * jaccard_score(truth[seen], predicted[seen], average="macro")
    found = mean_iou(torch.from_numpy(predicted), torch.from_numpy(truth), 4)
    assert found == pytest.approx(wanted)


def test_what_is_chosen_is_fitted_again_with_what_was_held_out(judged, monkeypatch):
    fitted, searched = [], []
    fit, find = patch_probes.logistic_regression, patch_probes.closest

    def counted_fit(features, *given):
        fitted.append((features.clone(), given[2]))
        assert given[-2:] == (1e-12, 5)  # tolerance and history of the released code
        return fit(features, *given)

    def counted_search(bank, queries, *given):
        searched.append((len(bank), len(queries)))
        return find(bank, queries, *given)

    monkeypatch.setattr(patch_probes, "logistic_regression", counted_fit)
    monkeypatch.setattr(patch_probes, "closest", counted_search)
    values = patch_segmentation(judged(Pixels()), **CHOICES)
    patches = (SIDE // PATCH) ** 2
    assert [(len(rows), given) for rows, given in fitted] == [
        (27 * patches, 0.01),
        (27 * patches, 1.0),
        (30 * patches, values["linear/C"]),
    ]
    assert torch.equal(fitted[-1][0][3 * patches :], fitted[0][0])
    # Both distances are tried on the tenth, one judges the validation images.
    assert searched == [(27 * patches, 3 * patches)] * 2 + [(30 * patches, 30 * patches)]


def test_the_tenth_that_is_held_out_follows_from_the_seed(judged, monkeypatch):
    seen = []
    fit = patch_probes.logistic_regression

    def noted(features, *given):
        seen.append(features)
        return fit(features, *given)

    monkeypatch.setattr(patch_probes, "logistic_regression", noted)
    for seed in (0, 0, 1):
        patch_segmentation(judged(Pixels(), seed), **CHOICES)
    first, again, other = seen[::3]
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


class LiveBytes(TorchDispatchMode):
    """Notes the most that the storages of all tensors made meanwhile take at a time."""

    def __init__(self):
        super().__init__()
        self.most, self.made = 0, []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        self.made += [TensorWeakRef(each) for each in tree_leaves(found) if torch.is_tensor(each)]
        self.made = [made for made in self.made if made() is not None]
        storages = [made().untyped_storage() for made in self.made]
        live = sum({each.data_ptr(): each.nbytes() for each in storages}.values())
        self.most = max(self.most, live)
        return found


@pytest.mark.slow
def test_little_more_than_the_tokens_is_in_memory(judged, monkeypatch):
    """1.3 times their bytes in half precision; blocks are as small beside them as on real data."""
    for module, name, size in (
        (neighbours, "CHUNK", 16),
        (neighbours, "QUERIES", 16),
        (patch_probes, "CHUNK", 16),
        (patch_probes, "QUERIES", 16),
        (patch_probes, "ROWS", 8),
    ):
        monkeypatch.setattr(module, name, size)
    width = 512
    given = {"strengths": (1.0,), "neighbours": (1, 3), "iterations": 1}
    measured = judged(Pixels(width))
    with LiveBytes() as counted:
        patch_segmentation(measured, precision="bf16", batch_size=1, **given)
    tokens = 2 * 30 * (SIDE // PATCH) ** 2 * width * 2
    assert tokens < counted.most < 1.3 * tokens


@pytest.mark.parametrize("done", range(6))
def test_a_probe_that_was_killed_does_not_judge_again(judged, tmp_path, monkeypatch, done):
    """Three regressions and three searches for neighbours: two to choose, the best once more."""
    trained, left = judged(Pixels(), folder=tmp_path), [6]
    whole = patch_segmentation(trained, **CHOICES)

    def counted(function):
        def call(*given):
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            return function(*given)

        return call

    for name in ("logistic_regression", "closest"):
        monkeypatch.setattr(patch_probes, name, counted(getattr(patch_probes, name)))
    left[0] = done
    with keeping("code"), pytest.raises(KeyboardInterrupt):
        patch_segmentation(trained, **CHOICES)
    left[0] = 6 - done
    with keeping("code"):
        assert patch_segmentation(trained, **CHOICES) == whole
    assert left[0] == 0
