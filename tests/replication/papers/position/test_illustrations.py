"""The illustrations show the datasets' own images."""

import numpy as np
import pytest
from PIL import Image

from replication.config.datasets import load_registry
from replication.context import Context, Described
from replication.datasets.miniature import write
from replication.images.opening import build
from replication.papers.position.measures import dataset_samples, position_samples
from vitrail.errors import VitrailError


@pytest.fixture(scope="module")
def describe(root, tmp_path_factory):
    registry = load_registry(root / "configs" / "datasets.yaml")
    folder = tmp_path_factory.mktemp("data")
    return lambda name: Described("cpu", folder, 0, recipe=None, info=registry[name])


@pytest.fixture(scope="module")
def values(describe):
    return position_samples(describe("pieces-in-corners"), samples=2)


def test_every_class_shows_its_own_samples(describe, values):
    described = describe("pieces-in-corners")
    train = build(described.info, "train", described.data_root)
    assert sum(values[f"{label}/images"] for label in range(16)) == len(train)
    for label in range(16):
        shown = np.array(values[f"{label}/pixels"])
        own = [np.asarray(image) for image, of in train if of == label][:2]
        assert (shown == np.stack(own)).all()


def test_only_the_first_eight_classes_have_a_corner_of_their_own(values):
    for label in range(16):
        share = np.array(values[f"{label}/share"])
        assert share.sum() == pytest.approx(100)
        if label < 8:
            assert values[f"{label}/dependent"] == 1
            assert share.flat[label % 4] == 100
        else:
            assert values[f"{label}/dependent"] == 0
            assert (share > 10).all()


def test_the_content_is_what_stands_in_the_corner(values):
    for label in range(8):
        row, column = 12 * (label % 4 // 2), 12 * (label % 2)
        frame = np.array(values[f"{label}/pixels"][0])
        content = np.array(values[f"{label}/content"])
        assert (frame[row : row + 12, column : column + 12] == content).all()
    originals = [values[f"{label}/original"] for label in range(16)]
    assert originals[:4] == [originals[0]] * 4
    assert originals[4:8] == [originals[4]] * 4
    assert sorted({*originals}) == list(range(10))


def test_a_class_without_images_shows_none(root, tmp_path):
    """A miniature does not have every class in every corner."""
    registry = load_registry(root / "configs" / "datasets.yaml")
    info = registry["cifar10-position-miniature"]
    write(info, tmp_path, tmp_path / info.folder)
    values = position_samples(Described("cpu", tmp_path, 0, recipe=None, info=info), samples=2)
    empty = [label for label in range(16) if not values[f"{label}/images"]]
    assert empty
    for label in empty:
        assert values[f"{label}/pixels"] == []
        assert not np.any(values[f"{label}/share"])
        assert not np.any(values[f"{label}/content"])


@pytest.mark.parametrize("name", ["digits", "pieces-in-a-row"])
def test_another_dataset_is_refused(describe, name):
    with pytest.raises(VitrailError, match=f"'{name}' depend on position is not known"):
        position_samples(describe(name))


def test_datasets_are_shown_by_images_spread_over_their_training_splits(root, describe):
    registry = load_registry(root / "configs" / "datasets.yaml")
    infos = registry["digits"], registry["two-pieces"]
    folder = describe("digits").data_root
    values = dataset_samples(Context("cpu", folder, 0, datasets=infos), image_size=16, samples=3)
    for place, info in enumerate(infos):
        train = build(info, "train", folder)
        assert values[f"{place}/images"] == len(train)
        assert values[f"{place}/classes"] == info.classes
        shown = np.array(values[f"{place}/pixels"])
        assert shown.shape == (3, 16, 16, 3)
        middle = train[len(train) // 3][0].resize((16, 16), Image.Resampling.BILINEAR)
        assert (shown[1] == np.asarray(middle)).all()
