import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from replication.datasets.arrays import scans
from replication.datasets.miniature import write_miniature
from replication.datasets.verify import verify
from replication.images.opening import build
from vitrail.errors import VitrailError

PIXELS = bytes(range(256)) * 12
# The official files' own bytes but for their content: Python 2's pickle of one image, labelled 5.
OFFICIAL = (
    b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    b"(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
    b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
    b"T" + struct.pack("<i", len(PIXELS)) + PIXELS + b"tbU\x06labels]K\x05au."
)


class Malicious:
    """Pickles as a call that makes a folder."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize(
    ("name", "batch"),
    [("cifar10", "cifar-10-batches-py/test_batch"), ("cifar100", "cifar-100-python/test")],
)
def test_a_pickle_that_would_run_code_is_refused_before_it_does(
    registry, tmp_path, name, batch, protocol
):
    folder = write_miniature(registry[name], tmp_path)
    attack = pickle.dumps({"data": Malicious(tmp_path / "made")}, protocol=protocol)
    (folder / batch).write_bytes(attack)
    with pytest.raises(VitrailError, match=r"calls posix\.mkdir, which no array needs"):
        build(registry[name], "val", tmp_path)
    with pytest.raises(VitrailError):
        verify(registry[name], tmp_path)
    assert not (tmp_path / "made").exists()


def test_what_python_2_wrote_is_read(registry, tmp_path):
    folder = write_miniature(registry["cifar10"], tmp_path)
    (folder / "cifar-10-batches-py" / "test_batch").write_bytes(OFFICIAL)
    ((image, label),) = build(registry["cifar10"], "val", tmp_path)
    red, green, blue = np.asarray(image).reshape(-1, 3).T
    assert label == 5
    assert red.tobytes() + green.tobytes() + blue.tobytes() == PIXELS


def test_digits_are_rgb_images_with_integer_labels(digits):
    image, label = build(digits, "train", Path("nowhere"))[0]
    assert isinstance(image, Image.Image)
    assert (image.mode, image.size, type(label)) == ("RGB", (8, 8), int)


def test_no_scan_of_the_validation_split_is_in_the_training_split(digits):
    train, val = (build(digits, split, Path("nowhere")) for split in ("train", "val"))
    assert (len(train), len(val)) == (digits.train_images, digits.val_images)
    scans = {image.tobytes() for image in train.images}
    assert len(scans) == len(train)
    assert not scans & {image.tobytes() for image in val.images}


def test_each_digit_keeps_two_thirds_of_its_scans(digits):
    train, val = (
        np.bincount(build(digits, split, Path("nowhere")).labels) for split in ("train", "val")
    )
    assert train / (train + val) == pytest.approx(2 / 3, abs=0.005)


def test_the_registry_normalises_digits_by_their_own_statistics(digits):
    images = build(digits, "train", Path("nowhere")).images / 255
    assert digits.mean == pytest.approx(images.mean((0, 1, 2)), abs=1e-5)
    assert digits.std == pytest.approx(images.std((0, 1, 2)), abs=1e-5)


def test_no_scan_is_in_both_splits():
    (train, labels), (test, _) = scans("train"), scans("val")
    assert (len(train), len(test)) == (1198, 599)
    assert (train.min(), train.max(), train.dtype) == (0, 1, np.float32)
    assert np.bincount(labels).min() >= 116
    seen = {image.tobytes() for image in train}
    assert not any(image.tobytes() in seen for image in test)
