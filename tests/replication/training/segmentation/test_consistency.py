"""mASCC is what Eq. 26 says, on segmenters whose answer is known."""

from types import SimpleNamespace

import vitrail.segmentation  # noqa: F401  # isort: skip
import pytest
import torch
from torch.nn import functional

from replication.context import Trained
from replication.measures import segmentation_consistency as consistency
from replication.measures.segmentation_consistency import segmentation_consistency, shifted_back
from replication.training.segmentation.accuracy import Sample
from vitrail.errors import VitrailError
from vitrail.measures.shifts import draws, integers

SIZES = 3 * ((32, 48), (48, 32), (32, 32))


def logits(classes, count):
    return functional.one_hot(classes, count).permute(0, 3, 1, 2).float()


class ByColour:
    """Classes follow from each pixel's colour: equivariant."""

    def inference(self, images, told):
        return logits((images[:, 0] > 0).long(), 2)


class ByPlace:
    """Classes are stripes of the picture's frame, whatever it shows: columns of even number."""

    def inference(self, images, told):
        stripes = torch.arange(images.shape[-1]) % 2
        return logits(stripes.expand(len(images), *images.shape[2:]), 2)


class ByNeighbour:
    """Classes follow from the colours of a pixel and of the one below it, zero at the border."""

    def inference(self, images, told):
        below = functional.pad(images[:, 0], (0, 0, 0, 1))[:, 1:]
        return logits((images[:, 0] + below > 0).long(), 2)


def samples(padding=0):
    generator = torch.Generator().manual_seed(0)
    made = []
    for index, (height, width) in enumerate(SIZES):
        image = torch.randn(3, height, width, generator=generator)
        padded = functional.pad(image, (0, padding, 0, padding))
        told = SimpleNamespace(img_shape=(height, width))
        made.append(Sample(padded, torch.zeros(height, width), str(index), told))
    return made


@pytest.fixture
def trained(info, recipe, data_root, monkeypatch):
    def make(model, padding=0, seed=0):
        monkeypatch.setattr(consistency, "ValidationSamples", lambda *_: samples(padding))
        return Trained("cpu", data_root, seed, recipe=recipe, info=info, model=model)

    return make


@pytest.mark.parametrize("mode", ["circular", "standard"])
@pytest.mark.parametrize("padding", [0, 16])
def test_a_segmenter_by_colour_keeps_every_pixel(trained, mode, padding):
    values = segmentation_consistency(trained(ByColour(), padding), mode)
    assert [values[key] for key in ("mascc", "identical", "bitwise")] == [100, 100, 100]
    assert values["images"] == len(SIZES)


def test_stripes_agree_where_columns_shift_by_an_even_number_apart(trained):
    """shift, Eq. 26, Sec. 5.5."""
    values = segmentation_consistency(trained(ByPlace()), "circular")
    same = 0
    for index, (height, width) in enumerate(SIZES):
        uniform = draws(0, "circular shift of a scene", [index], 2, 2)[0]
        first, second = integers(uniform, torch.tensor([height - 1, width - 1]))
        same += int((first - second)[1] % 2 == 0)
    assert values["mascc"] == values["identical"] == pytest.approx(100 * same / len(SIZES))
    assert 0 < same < len(SIZES)  # else it would show nothing


def test_standard_shifts_compare_the_overlap_alone(trained):
    """shift, Sec. 5.6."""
    run = trained(ByNeighbour())
    for sample in samples():
        height, width = sample.image.shape[1:]
        offsets = torch.tensor([[3, -2], [-1, 4]])
        found, seen = shifted_back(run, sample, offsets, "standard")
        for view, (rows, columns) in enumerate(offsets.tolist()):
            for u, v in ((0, 0), (2, 1), (3, 0), (height - 1, width - 1), (height - 2, width - 3)):
                i, j = u - rows, v - columns  # where the view shows the image's pixel (u, v)
                shown = 0 <= i < height and 0 <= j < width
                assert seen[view, u, v] == shown
                if shown:
                    last = i == height - 1 or u == height - 1
                    below = 0.0 if last else sample.image[0, u + 1, v].item()
                    expected = int(sample.image[0, u, v].item() + below > 0)
                    assert found[view, :, u, v].argmax() == expected


def test_limits_follow_the_short_side(trained):
    values = segmentation_consistency(trained(ByColour()), "standard", max_shift=64)
    assert values["max_shift_pixels"] == 64 * 32 // 512


def test_draws_follow_from_the_seed_and_the_index_alone(trained, monkeypatch):
    seen = []
    monkeypatch.setattr(
        consistency,
        "shifted_back",
        lambda trained, sample, offsets, mode: (
            seen.append((sample.name, offsets.tolist()))
            or shifted_back(trained, sample, offsets, mode)
        ),
    )
    segmentation_consistency(trained(ByColour()), "circular")
    everything = dict(seen)
    seen.clear()
    segmentation_consistency(trained(ByColour()), "circular", images=2)
    assert len(seen) == 2
    assert all(everything[name] == offsets for name, offsets in seen)
    seen.clear()
    segmentation_consistency(trained(ByColour(), seed=1), "circular", images=2)
    assert all(everything[name] != offsets for name, offsets in seen)


def test_an_unknown_mode_is_named(trained):
    with pytest.raises(VitrailError, match="no mode 'circle'; did you mean 'circular'"):
        segmentation_consistency(trained(ByColour()), "circle")
