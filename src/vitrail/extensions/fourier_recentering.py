"""A position that moves with the image by fractions of a pixel; the paper lacks it.

Every choice among whole pixels, such as that of A-token, changes abruptly at some shift between two
pixels. Here the position of an image is computed from the phases of Fourier coefficients, which
change continuously when the image moves. The image is shifted so that this position is in the
middle, and is then the input of a plain model. So the logits are the same, up to rounding, under
every circular shift of the band-limited image, also by fractions of a pixel. Under shifts by whole
pixels they keep every bit.

1. The maps of an image are its energy (the sum over channels of the squares of their low-passed
   values, without their mean) and its channels. As the energy is of low-passed values, it occupies
   less than half a cycle a pixel, and its coefficients are free of aliasing.
2. Of an object at position p, in sides of the image, the coefficient of the frequency f is
   proportional to exp(-2 pi i f . p). So the angles of two coefficients whose frequencies f1 and f2
   are independent give p, modulo the translations q for which f1 . q and f2 . q are whole.
3. f1 is the lowest frequency whose coefficient does not vanish, f2 the lowest that is independent
   of f1; those of the energy come first. For most images they are (0, 1) and (1, 0); p is unique.
   If one of these vanishes, as for three equal objects or for a checkerboard, there are several
   such positions, as many as the absolute value of the determinant of f1 and f2. The other
   coefficients distinguish them: the position at which the image is most like a fixed template is
   taken. Positions that no coefficient distinguishes are those of a periodic image; with any of
   them the model gets the same input.

No definition of position is continuous in all images: if the coefficients of f1 or f2 nearly
vanish, a small change of the image may change the position much. `strength` measures how near an
image is to this.
"""

from __future__ import annotations

import functools
from math import gcd
from typing import Any, NamedTuple

import numpy as np
import torch
from timm.models import build_model_with_cfg, register_model
from timm.models.swin_transformer import SwinTransformer
from timm.models.swin_transformer import checkpoint_filter_fn as swin_filter_fn
from timm.models.vision_transformer import VisionTransformer
from timm.models.vision_transformer import checkpoint_filter_fn as vit_filter_fn
from torch import Tensor, nn

from vitrail.extensions.fractional_shifts import fourier_shift
from vitrail.shift.features import default_cfgs_of
from vitrail.shift.geometry import roll_image
from vitrail.shift.polyphase import to_float64

CUT = 0.25
"""Cutoff of the low-pass for the energy, in cycles per pixel: squaring doubles the band."""
VANISHES = 1e-5
"""Coefficients below this share of the image's energy count as 0 (rounding of float32 images)."""
TEMPLATE = 16
"""Highest frequency of the template, in cycles per image, on each axis."""
ROUND_UP = 0.7
"""The fraction of a pixel from which a position is rounded up to the next whole pixel.

It is not 0.5: the position of an image with a mirror axis is often exactly between two pixels, and
rounding errors would then decide between them.
"""


def position(images: Tensor) -> Tensor:
    """Return the position ``(B, 2)`` (row, column) of each of ``(B, C, H, W)``, in pixels.

    It is in float64 if the device has it. Shifting an image by o, out(i) = x(i + o), subtracts o
    from its position, modulo the size of the image, or, for a periodic image, modulo its period.
    """
    return _position(images.detach())


@torch.no_grad()
def strength(images: Tensor) -> Tensor:
    """Return the weaker of the energy's coefficients of (0, 1) and (1, 0), ``(B,)``.

    It is a share of the energy, from 0 (the lowest frequencies give no position along an axis) to
    1.
    """
    frequencies, coefficients = _coefficients(images)
    lowest = (frequencies[:, :2].square().sum(dim=1) == 1) & (frequencies[:, 2] == 0)
    return coefficients[:, lowest].abs().amin(dim=1)


@torch.library.custom_op("vitrail::harmonic_position", mutates_args=())
def _position(images: torch.Tensor) -> torch.Tensor:
    frequencies, coefficients = _coefficients(images)
    strong = coefficients.abs() > VANISHES
    vectors = frequencies[:, :2]
    first = _first(strong)  # (B,)
    f1 = vectors[first]
    across = f1[:, :1] * vectors[:, 1] - f1[:, 1:] * vectors[:, 0]  # (B, J): 0 where parallel
    independent = strong & (across != 0)
    second = _first(independent)
    # Without a coefficient any position is right. With only one, the image is constant along the
    # crests of its wave, and f2 may be any independent vector.
    found1, found2 = strong.any(dim=1), independent.any(dim=1)
    turned = torch.stack([-f1[:, 1], f1[:, 0]], dim=1)
    f2 = vectors[second].where(found2[:, None], turned)
    angles = -coefficients.angle() / (2 * torch.pi)
    a1 = angles.gather(1, first[:, None])[:, 0] * found1
    a2 = angles.gather(1, second[:, None])[:, 0] * found2
    det = f1[:, 0] * f2[:, 1] - f1[:, 1] * f2[:, 0]
    # Cramer's rule: f1 . p = a1, f2 . p = a2
    place = torch.stack([a1 * f2[:, 1] - a2 * f1[:, 1], a2 * f1[:, 0] - a1 * f2[:, 0]], dim=1)
    place = place / det[:, None]
    for index in (det.abs() > 1).nonzero()[:, 0].tolist():
        steps = _remaining(*f1[index].tolist(), *f2[index].tolist())
        candidates = place[index] + torch.tensor(steps).to(place)
        place[index] = _most_like_template(candidates, frequencies, coefficients[index])
    size = torch.tensor(images.shape[2:], device=images.device)
    return place % 1 * size


@_position.register_fake
def _(images: Tensor) -> Tensor:
    return to_float64(images.new_empty(images.shape[0], 2))


def _first(found: Tensor) -> Tensor:
    """Return the index of the first True of each row ``(B, J)``; 0 if there is none."""
    return found.to(torch.uint8).argmax(dim=1)


def _coefficients(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return frequencies ``(J, 3)`` and the coefficients ``(B, J)`` of ``(B, C, H, W)`` there.

    A row of the frequencies is (cycles per height, cycles per width, map). Map 0 is the energy, the
    others are the channels. Their order is that in which they are considered for the position.
    Coefficients are relative: to the energy for map 0, to its square root for the others.
    """
    height, width = images.shape[2:]
    x = to_float64(images)
    x = x - x.mean(dim=(2, 3), keepdim=True)
    rows = torch.fft.fftfreq(height, device=x.device)[:, None]
    columns = torch.fft.rfftfreq(width, device=x.device)
    seen = (rows.abs() < CUT) & (columns < CUT)
    low = torch.fft.irfft2(torch.fft.rfft2(x) * seen, s=(height, width))
    energy = x.square().sum(dim=(1, 2, 3))[:, None, None, None]
    energy = energy.where(energy > 0, 1)  # a flat image has no coefficients
    maps = torch.cat(
        [
            low.square().sum(dim=1, keepdim=True) / energy,
            x / (energy * height * width).sqrt(),
        ],
        dim=1,
    )
    frequencies = _ordered(height, width, maps.shape[1]).to(x.device)
    spectra = torch.fft.rfft2(maps)
    return frequencies, spectra[:, frequencies[:, 2], frequencies[:, 0], frequencies[:, 1]]


@functools.lru_cache(maxsize=8)
def _ordered(height: int, width: int, maps: int) -> Tensor:
    """Return the frequencies of `_coefficients`: of the energy first, and low ones first.

    There is one of each pair f and -f, and none of half a cycle per pixel, whose sine is unknown.
    """
    listed = [
        (row, column, number)
        for number in range(maps)
        for row in range(-((height - 1) // 2), (height - 1) // 2 + 1)
        for column in range((width - 1) // 2 + 1)
        if column > 0 or row > 0
    ]
    listed.sort(key=lambda at: (at[2] > 0, at[0] ** 2 + at[1] ** 2, at))
    return torch.tensor(listed)


@functools.lru_cache(maxsize=64)
def _remaining(a: int, b: int, c: int, d: int) -> list[tuple[float, float]]:
    """Return the translations q, in image sides, for which (a, b) . q and (c, d) . q are integers.

    They are the |ad - bc| columns of integer combinations of the inverse matrix, modulo 1. Its
    columns have the order |ad - bc| / g, where g divides all four; combinations of the first by all
    of its multiples and of the second by as many as it takes reach all.
    """
    det = abs(a * d - b * c)
    order = det // gcd(a, b, c, d)
    found = {
        ((d * m - b * n) % det, (a * n - c * m) % det) for m in range(order) for n in range(order)
    }
    assert len(found) == det
    return [(row / det, column / det) for row, column in sorted(found)]


def _most_like_template(candidates: Tensor, frequencies: Tensor, coefficients: Tensor) -> Tensor:
    """Return the candidate position, of ``(N, 2)``, at which the image is most like the template.

    Moving the content of an image from p to the origin turns c(f) to c(f) exp(2 pi i f . p).
    """
    seen = (frequencies[:, :2].abs() <= TEMPLATE).all(dim=1)
    template = _template(frequencies.shape[0]).to(coefficients)[seen]
    turns = 2 * torch.pi * candidates @ frequencies[seen, :2].to(candidates).mT  # (N, J)
    moved = torch.polar(torch.ones_like(turns), turns) * coefficients[seen]
    return candidates[(moved @ template).real.argmax()]


@functools.lru_cache(maxsize=8)
def _template(count: int) -> Tensor:
    """Return complex numbers of absolute value 1 with fixed pseudo-random angles, ``(count,)``."""
    angles = np.random.default_rng(0).uniform(0, 2 * np.pi, count)
    return torch.polar(torch.ones(count, dtype=torch.float64), torch.from_numpy(angles))


class Move(NamedTuple):
    """A shift of each image: by whole pixels, then by a fraction of one, ``(B, 2)`` each."""

    whole: Tensor
    rest: Tensor

    def there(self, images: Tensor) -> Tensor:
        """Move each of ``(B, C, H, W)``."""
        return fourier_shift(roll_image(images, self.whole), self.rest)

    def back(self, maps: Tensor) -> Tensor:
        """Shift maps ``(B, K, H, W)`` of the moved images back to the original positions.

        The last step rolls by whole pixels. So for images that are such rolls of each other, the
        maps are rolled alike and have the same bits.
        """
        return roll_image(fourier_shift(maps, -self.rest), -self.whole)


def move_to_middle(images: Tensor, jitter: float = 0.0) -> Move:
    """Return the shift that moves the position of each of ``(B, C, H, W)`` to the middle.

    Each image is rolled by whole pixels first. Images that are shifts of each other by whole pixels
    are then equal in every bit, and so is the remaining shift by a fraction of a pixel. `jitter` is
    the standard deviation, in pixels, of a further random shift for each image and axis.
    """
    middle = torch.tensor(images.shape[2:], device=images.device) // 2
    size = torch.tensor(images.shape[2:], device=images.device)
    whole = ((position(images) - ROUND_UP).ceil().long() - middle) % size
    rest = position(roll_image(images, whole)) - middle
    if jitter:
        rest = rest + jitter * torch.randn_like(rest)
    return Move(whole, rest)


@torch.fx.wrap  # one node of a traced graph
def recentred(images: Tensor, jitter: float = 0.0) -> Tensor:
    """Move the content of each of ``(B, C, H, W)`` to the middle: see `move_to_middle`."""
    return move_to_middle(images, jitter).there(images)


class Recentred(nn.Module):
    """`recentred` as a module, with jitter in training only."""

    def __init__(self, jitter: float = 0.0) -> None:
        super().__init__()
        self.jitter = jitter

    def forward(self, images: Tensor) -> Tensor:
        """Move the content of each of ``(B, C, H, W)`` to the middle."""
        return recentred(images, self.jitter if self.training else 0.0)

    def move(self, images: Tensor) -> Move:
        """Return the shift of each image in `forward`; with jitter, it is drawn anew."""
        return move_to_middle(images, self.jitter if self.training else 0.0)

    def extra_repr(self) -> str:
        """Return the arguments that torch prints for the module."""
        return f"jitter={self.jitter}"


class RecentredModel(nn.Module):
    """A mix-in that recentres the input of a timm model; list it before timm's class.

    The features are those of the recentred images. The outputs of a decoder are shifted back by the
    `Move` that `forward_moved` returns, as in `vitrail.extensions.fourier_upernet`.

    Args:
        args: of timm's model.
        jitter: of `recentred`, in training.
        kwargs: of timm's model.
    """

    def __init__(self, *args: Any, jitter: float = 0.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.recentred = Recentred(jitter)

    def forward_features(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return timm's last tokens of images ``(B, C, height, width)``."""
        tokens: Tensor = super().forward_features(self.recentred(x), *args, **kwargs)  # type: ignore[misc]
        return tokens

    def forward_intermediates(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Return timm's result for the recentred images."""
        return super().forward_intermediates(self.recentred(x), *args, **kwargs)  # type: ignore[misc]

    def forward_moved(self, x: Tensor) -> tuple[list[Tensor], Move]:
        """Return timm's maps of the recentred images, from fine to coarse, and the images' shift.

        ``x`` is ``(B, C, height, width)``, a map ``(B, D, height / stride, width / stride)``.
        """
        move = self.recentred.move(x)
        maps = super().forward_intermediates(move.there(x), intermediates_only=True)  # type: ignore[misc]
        return maps, move


class HarmonicViT(RecentredModel, VisionTransformer):
    """timm's ViT on recentred images: see `RecentredModel` for the arguments."""


class HarmonicSwin(RecentredModel, SwinTransformer):
    """timm's Swin on recentred images: see `RecentredModel` for the arguments."""


VIT = "harmonic_vit_small_patch16_224"
SWIN = "harmonic_swin_tiny_patch4_window7_224"
default_cfgs = default_cfgs_of({VIT: "vit_small_patch16_224", SWIN: "swin_tiny_patch4_window7_224"})


def _build(model_type: type[nn.Module], name: str, pretrained: bool, **kwargs: Any) -> nn.Module:
    feature_cfg = {"out_indices": kwargs.pop("out_indices"), "feature_cls": "getter"}
    return build_model_with_cfg(model_type, name, pretrained, feature_cfg=feature_cfg, **kwargs)


@register_model
def harmonic_vit_small_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """Make ViT-S/16 on recentred images."""
    options = {"patch_size": 16, "embed_dim": 384, "depth": 12, "num_heads": 6, **kwargs}
    options.setdefault("out_indices", min(3, options["depth"]))
    return _build(HarmonicViT, VIT, pretrained, pretrained_filter_fn=vit_filter_fn, **options)


@register_model
def harmonic_swin_tiny_patch4_window7_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """Make Swin-T on recentred images."""
    options = {
        "patch_size": 4,
        "window_size": 7,
        "embed_dim": 96,
        "depths": (2, 2, 6, 2),
        "num_heads": (3, 6, 12, 24),
        **kwargs,
    }
    options.setdefault("out_indices", tuple(range(len(options["depths"]))))
    return _build(HarmonicSwin, SWIN, pretrained, pretrained_filter_fn=swin_filter_fn, **options)
