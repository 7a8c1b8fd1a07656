"""Weak positions are counted as a loop over Fourier sums counts them."""

import math
from pathlib import Path

import pytest
import torch

from replication.context import Context
from replication.images.transforms import eval_transform
from replication.measures.validation_split import validation_batches
from replication.papers.shift import degenerate_phases as position_limits
from replication.papers.shift.degenerate_phases import (
    constructed,
    constructed_positions,
    weak_positions,
)
from vitrail.extensions.fourier_recentering import CUT


def weaker_coefficient(image):
    """The smaller share of (0, 1) and (1, 0) in the energy of ``(C, H, W)``, by sums."""
    x = image.double() - image.double().mean(dim=(1, 2), keepdim=True)
    height, width = x.shape[1:]
    rows = torch.fft.fftfreq(height)[:, None].abs()
    columns = torch.fft.fftfreq(width).abs()
    low = torch.fft.ifft2(torch.fft.fft2(x) * ((rows < CUT) & (columns < CUT))).real
    energy, whole = low.square().sum(dim=0), x.square().sum().item()
    if whole == 0:
        return 0.0
    shares = []
    for sums, side in ((energy.sum(dim=1), height), (energy.sum(dim=0), width)):
        turns = [2 * math.pi * n / side for n in range(side)]
        real = sum(v * math.cos(a) for v, a in zip(sums.tolist(), turns, strict=True))
        imaginary = sum(v * math.sin(a) for v, a in zip(sums.tolist(), turns, strict=True))
        shares.append(math.hypot(real, imaginary) / whole)
    return min(shares)


def test_constructed_images_are_counted_by_kind():
    values = constructed_positions(Context("cpu", Path(), 0))
    for kind in {kind for kind, _ in constructed()}:
        shares = [
            weaker_coefficient(image[0]) for (k, _), image in constructed().items() if k == kind
        ]
        weak = [share < 1e-3 for share in shares]
        assert values[f"{kind}/images"] == len(shares)
        assert values[f"{kind}/weak"] == pytest.approx(100 * sum(weak) / len(weak))
        assert values[f"{kind}/smallest"] == pytest.approx(min(shares), abs=1e-12)
        assert values[f"{kind}/together"] == 100  # the next frequencies say where it is
    assert values["one place/weak"] == 0
    assert values["flat along an axis/weak"] == 100
    assert 0 < values["equal objects/weak"] < 100


def test_the_images_of_a_run_are_counted(trained_on_digits):
    trained = trained_on_digits(torch.nn.Identity(), image_size=16)
    values = weak_positions(trained, images=40)
    transform = eval_transform(trained.recipe, trained.info)
    ((_, batch, _),) = validation_batches(trained, transform, 128, 40)
    shares = [weaker_coefficient(image) for image in batch]
    assert values["smallest"] == pytest.approx(min(shares))
    assert values["weak"] == pytest.approx(100 * sum(share < 1e-3 for share in shares) / 40)
    assert (values["together"], values["images"]) == (100, 40)


def test_images_that_are_moved_to_other_places_are_counted(trained_on_digits, monkeypatch):
    monkeypatch.setattr(position_limits, "recentred", lambda images: images)
    values = weak_positions(trained_on_digits(torch.nn.Identity(), image_size=16), images=10)
    assert values["together"] == 0
