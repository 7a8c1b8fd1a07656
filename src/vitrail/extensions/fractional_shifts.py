"""Circular shifts by fractions of a pixel.

Between its pixels, an image is defined as the trigonometric polynomial through them. Its shifts
form a group: a shift by a, then by b, is a shift by a + b. One frequency is an exception: half a
cycle per pixel, which exists if a side has an even number of pixels. There the pixels give the
cosine, but not the sine. `band_limited` removes this frequency.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def band_limited(images: Tensor) -> Tensor:
    """Remove the frequency of half a cycle per pixel from ``(B, C, H, W)``, along both axes."""
    return fourier_shift(images, images.new_zeros(images.shape[0], 2))


def fourier_shift(images: Tensor, offsets: Tensor) -> Tensor:
    """Shift ``(B, C, H, W)`` circularly by offsets ``(B, 2)`` in pixels: out(i) = x(i + o).

    The frequency that `band_limited` removes is removed. So whole offsets roll band-limited images,
    up to rounding. Half precision is computed in float32.
    """
    height, width = images.shape[2:]
    x = images if images.dtype == torch.float64 else images.float()
    x = x.contiguous()  # torch 2.6 cannot transform images in channels-last memory format
    rows = _turns(torch.fft.fftfreq(height, dtype=x.dtype, device=x.device), offsets[:, 0], x)
    columns = _turns(torch.fft.rfftfreq(width, dtype=x.dtype, device=x.device), offsets[:, 1], x)
    spectra = torch.fft.rfft2(x) * rows[:, None, :, None] * columns[:, None, None, :]
    return torch.fft.irfft2(spectra, s=(height, width)).to(images)


def _turns(frequencies: Tensor, offsets: Tensor, like: Tensor) -> Tensor:
    """Return the factor ``(B, F)`` of each frequency, in cycles per pixel; 0 at half a cycle."""
    angles = 2 * math.pi * offsets.to(like)[:, None] * frequencies
    return torch.polar((frequencies.abs() < 0.5).to(like).expand_as(angles), angles)
