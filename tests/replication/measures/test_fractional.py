"""Fractional consistency is what closed forms and a loop over the logits say."""

import pytest
import torch
from torch import nn

from replication.measures.fractional import camera_view, fractional_consistency
from vitrail.errors import VitrailError
from vitrail.extensions.fractional_shifts import band_limited, fourier_shift
from vitrail.measures.shifts import circular_shift


class Spectrum(nn.Module):
    """Ten absolute values of Fourier coefficients, which no circular shift changes."""

    def forward(self, x):
        return torch.fft.rfft2(x[:, 0])[:, 1:3, :4].abs().flatten(1).repeat(1, 2)[:, :10]


class Linear(nn.Module):
    """Ten pixels of the image; keeps what it was shown."""

    def __init__(self):
        super().__init__()
        self.shown = []

    def forward(self, x):
        self.shown.append(x)
        return x[:, 0, 2:4, 1:6].flatten(1)


def test_no_fraction_changes_what_the_spectrum_says(trained_on_digits):
    values = fractional_consistency(trained_on_digits(Spectrum()), images=40)
    for fraction in ("0.03", "0.1", "0.25", "0.5"):
        assert values[f"fourier/{fraction}/consistency"] == 100
        assert values[f"fourier/{fraction}/change"] < 1e-5
    # The camera's pixels are means, which lose contrast between two pixels.
    assert values["camera/0.5/change"] > 0.01
    assert values["images"] == 40


def test_the_change_is_that_of_a_loop_over_logits(trained_on_digits):
    model = Linear()
    values = fractional_consistency(
        trained_on_digits(model), fourier=[0.25], camera=[0.5], batch_size=50, images=50
    )
    still, moved, still_camera, moved_camera = (x[:, 0, 2:4, 1:6].flatten(1) for x in model.shown)
    for name, before, after in (
        ("fourier/0.25", still, moved),
        ("camera/0.5", still_camera, moved_camera),
    ):
        before, after = (x.double() - x.double().mean(dim=1, keepdim=True) for x in (before, after))
        change = ((after - before) ** 2).mean() / before.var(dim=0, correction=0).mean()
        assert values[f"{name}/change"] == pytest.approx(change.sqrt().item())
        kept = (before.argmax(dim=1) == after.argmax(dim=1)).double().mean().item()
        assert values[f"{name}/consistency"] == pytest.approx(100 * kept)


def test_each_image_is_shifted_as_far_in_a_direction_of_its_own(trained_on_digits):
    model = Linear()
    fractional_consistency(trained_on_digits(model), fourier=[0.25], camera=[], images=30)
    still, moved, _ = model.shown
    directions = set()
    for before, after in zip(still, moved, strict=True):
        (found,) = [
            (rows, columns)
            for rows in (-0.25, 0.25)
            for columns in (-0.25, 0.25)
            if torch.allclose(
                fourier_shift(before[None], torch.tensor([[rows, columns]]))[0], after, atol=1e-5
            )
        ]
        directions.add(found)
    assert len(directions) == 4
    torch.testing.assert_close(still, band_limited(still))


def test_a_cameras_pixels_are_means_of_a_finer_image():
    images = torch.randn(2, 1, 8, 8, generator=torch.manual_seed(0), dtype=torch.float64)
    whole = torch.tensor([[1.0, 0.0], [-2.0, 5.0]])
    still = camera_view(images, torch.zeros(2, 2))
    torch.testing.assert_close(camera_view(images, whole), circular_shift(still, whole.long()))
    steps = [camera_view(images, torch.full((2, 2), step / 4)) for step in range(4)]
    assert all((step - still).abs().max() > 0.01 for step in steps[1:])
    ramp = torch.arange(8.0).expand(1, 1, 8, 8)  # bicubic keeps a ramp, away from the border
    moved = camera_view(ramp, torch.tensor([[0.0, 0.25]])) - camera_view(ramp, torch.zeros(1, 2))
    torch.testing.assert_close(moved[..., 3:5], torch.full((1, 1, 8, 2), 0.25), rtol=0, atol=1e-5)


def test_a_camera_moves_by_quarters(trained_on_digits):
    with pytest.raises(VitrailError, match=r"multiples of 0\.25"):
        fractional_consistency(trained_on_digits(Linear()), camera=[0.3])
