"""Photographs are those of the dataset, spread over it, and one digest names them."""

import dataclasses
import hashlib

import numpy as np
import pytest
import torch
from PIL import Image

from replication.measures.photographs import centres, crops, photographs
from tests.replication.placed import context_of
from vitrail.errors import VitrailError

WIDTHS = (40, 48, 56, 64)


@pytest.fixture
def context(tmp_path):
    """Four validation images of other widths and colours."""
    pictures = (
        np.random.RandomState(number).randint(256, size=(32, width, 3), dtype=np.uint8)
        for number, width in enumerate(WIDTHS)
    )
    return context_of(tmp_path, pictures)


def test_photographs_are_spread_evenly_over_the_validation_split(context):
    found = photographs(context, 2)
    assert [image.size for image in found] == [(40, 32), (56, 32)]
    assert {image.mode for image in found} == {"RGB"}
    assert [image.size for image in found[1:]] == [(56, 32)]
    sizes = [[image.width for image in batch] for batch in photographs(context, 3).batches(2)]
    assert sizes == [[40, 48], [56]]


def test_the_digest_is_of_sizes_and_pixels_in_order(context):
    found = photographs(context, 4)
    content = b""
    for image in found:
        pixels = np.asarray(image)
        content += np.array(pixels.shape[:2], dtype="<u4").tobytes() + pixels.tobytes()
    assert found.sha256 == hashlib.sha256(content).hexdigest()
    assert len({found.sha256, found[::-1].sha256, found[:3].sha256}) == 3


@pytest.mark.parametrize("count", [0, 5])
def test_more_photographs_than_there_are_or_none_are_refused(context, count):
    with pytest.raises(VitrailError, match=rf"{count} photographs .*'tiny-imagenet' .*has 4"):
        photographs(context, count)


def test_crops_follow_from_the_seed_and_leave_torchs_generator_alone(context):
    found = photographs(context, 4)
    state = torch.get_rng_state()
    first = crops(found, 16, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    assert first.shape == (4, 3, 16, 16)
    assert (first.min() >= 0, first.max() <= 1) == (True, True)
    assert torch.equal(first, crops(found, 16, seed=3))
    assert not torch.equal(first, crops(found, 16, seed=4))


def test_a_centre_has_the_middle_of_the_photograph_and_its_whole_short_side():
    ramp = np.tile(np.arange(100, dtype=np.uint8)[:, None], (1, 3))  # of columns
    photo = Image.fromarray(np.tile(ramp, (40, 1, 1)))
    (centre,) = centres([photo], 40)
    assert torch.equal(centre[0, 0], torch.arange(30, 70) / 255)
    (larger,) = centres([photo], 80)
    assert larger.shape == (3, 80, 80)
    expected = torch.arange(30, 70).repeat_interleave(2) / 255
    assert (larger[0, 40] - expected).abs().max() < 1 / 255
    upright = centres([photo.transpose(Image.Transpose.TRANSPOSE)], 40)
    assert torch.equal(upright[0], centre.mT)


def test_the_centre_of_a_test_image_is_cut_from_a_larger_one():
    """variance, Sec. "Variance Shift Due to Upsampling": 224 at 0.9 is cut from 248."""
    colours = np.random.default_rng(0).integers(256, size=(300, 500, 3), dtype=np.uint8)
    photo = Image.fromarray(colours)
    (larger,), (centre,) = centres([photo], 248), centres([photo], 224, crop_pct=0.9)
    assert torch.equal(centre, larger[:, 12:-12, 12:-12])


def test_the_dataset_is_the_one_that_is_asked_for(context, registry):
    both = dataclasses.replace(context, datasets=(registry["digits"], *context.datasets))
    assert photographs(both, 4, dataset=1).sha256 == photographs(context, 4).sha256
    assert photographs(both, 4).sha256 != photographs(context, 4).sha256
