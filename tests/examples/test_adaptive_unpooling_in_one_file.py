"""Unpooling and UperNet's head are those of the example, which shares no code with them."""

import pytest
import torch
from torch import nn

from examples import adaptive_unpooling_in_one_file as oracle
from tests.examples.images import noise
from tests.vitrail.segmentation.segmenters import (
    CLASSES,
    SIDE,
    WIDTHS,
    equivariance_error,
    micro,
    offsets,
    spread,
)
from vitrail.shift.geometry import Features, unpool

pytestmark = pytest.mark.filterwarnings("ignore:Default ``avg_non_ignore``")  # mmseg's own


@pytest.mark.parametrize("stride", [1, 2, 4, 8])
def test_unpooling_is_that_of_the_example(stride):
    """shift, Sec. 4."""
    place, target = 8 * offsets(5, 4, 3), stride * offsets(5, 32 // stride, 24 // stride)
    source = Features(noise(5, 2, 4, 3), place + target % 8, 8)
    expected = oracle.unpool(source, target, stride)
    torch.testing.assert_close(unpool(source, target, stride), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", ["swin", "swinv2"])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 1)])
def test_logits_are_those_of_the_example(family, rows, columns):
    """shift, Sec. 4, Sec. 5.5."""
    model = micro(family).double()
    decoder = oracle.Decoder(WIDTHS, channels=16, classes=CLASSES).double().eval()
    decoder.load_state_dict(model.decode_head.state_dict())
    images = noise(4, 3, rows * SIDE[family], columns * SIDE[family])
    with torch.inference_mode():
        expected = decoder(model.backbone(images).features)
        torch.testing.assert_close(model(images), expected, rtol=0, atol=1e-12)
        assert expected.std() > 0.05


class Segmenter(nn.Module):
    """The example's, whose encoder says where its features sit, or says that all begin at 0."""

    def __init__(self, places_features=True):
        super().__init__()
        widths = (4, 8, 12, 16)
        self.encoder = oracle.Encoder(widths, strides=(4, 2, 2, 2), window=3)
        self.decoder = oracle.Decoder(widths, channels=8, classes=CLASSES)
        self.places_features = places_features

    def forward(self, images):
        stages = self.encoder(images)
        if not self.places_features:
            stages = [stage._replace(offset=0 * stage.offset) for stage in stages]
        return self.decoder(stages)


def segmenter(**options):
    torch.manual_seed(0)
    return spread(Segmenter(**options).double())


@pytest.mark.parametrize(("height", "width"), [(96, 96), (192, 96)])
def test_logits_of_the_example_shift_with_the_image(height, width):
    """shift, Eq. 2, Sec. 4."""
    assert equivariance_error(segmenter(), noise(4, 3, height, width)) <= 1e-12


def test_logits_do_not_shift_with_the_image_without_the_places_of_features():
    images = noise(4, 3, 96, 96)
    assert equivariance_error(segmenter(places_features=False), images) > 1e-3


def test_the_bins_of_the_pyramid_need_an_anchor(monkeypatch):
    """The last stage has several windows, whose first the paper leaves open."""
    strongest = oracle.strongest
    monkeypatch.setattr(oracle, "strongest", lambda *args: strongest(*args) % args[-1])
    assert equivariance_error(segmenter(), noise(4, 3, 192, 96)) > 1e-3
