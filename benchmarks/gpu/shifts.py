"""Logits under circular shifts of images; whether the bits of tokens depend on their place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.gpu.families import shift
from benchmarks.gpu.running import Measured, Settings, Step, each
from benchmarks.shift_ties import IMAGES
from vitrail.measures.selection_margins import selection_margins
from vitrail.shift.geometry import roll_image

CONTENTS = ("stripes", "tiles", "two equal objects", "photographs")


def steps() -> Iterable[Step]:
    """Yield a step for each kind of image, and one for the bits of tokens."""
    for content in CONTENTS:
        yield Step(f"shift/{content}", partial(shifts, content=content), limit=60)
    yield Step("bits by place", bits_by_place, limit=30)


def shifts(settings: Settings, content: str) -> Iterator[Measured]:
    """Compare logits of adaptive models before and after circular shifts of images, in float32.

    Each image is shifted by its own offset. Measured are the largest change divided by the largest
    logit, the share of images whose logits keep all bits, and the share of images that are
    certified (`vitrail.measures.selection_margins`).
    """
    families, count = shift(settings.quick), 2 if settings.quick else 16

    def compare(label: str) -> Iterator[Measured]:
        family = families[label]
        model = family.build().to(settings.device)
        images = IMAGES[content](family.side, count).to(settings.device)
        generator = torch.Generator().manual_seed(1)
        offsets = torch.randint(family.side, (count, 2), generator=generator)
        with torch.no_grad():
            with selection_margins(model) as margins:
                logits = model(images)
            moved = model(roll_image(images, offsets.to(settings.device)))
        changes = (moved - logits).abs().amax(dim=1)
        place = f"shift/{label}/{content}"
        relative = (changes.max() / logits.abs().max()).item()
        yield Measured(f"{place}/error", relative, "of the largest logit")
        yield Measured(f"{place}/equal", _percent(changes == 0), "% of images")
        yield Measured(f"{place}/certified", _percent(margins.smallest() > 1), "% of images")

    yield from each(families, compare)


def _percent(each_one: Tensor) -> float:
    return 100 * each_one.double().mean().item()


def bits_by_place(settings: Settings) -> Iterator[Measured]:
    """Measure how many results of tokenwise layers keep their bits if tokens move to other places.

    The change that rounding by place makes in a score must be below
    `vitrail.shift.polyphase.TIE_RTOL`.
    """
    device, side, step = settings.device, 224, 4
    count, width = (2, 24) if settings.quick else (32, 96)
    torch.manual_seed(0)
    conv = nn.Conv2d(3, width, step, step).to(device)
    linear, norm = nn.Linear(width, 3 * width).to(device), nn.LayerNorm(width).to(device)
    images = torch.randn(count, 3, side, side, device=device)
    tokens = torch.randn(count, side // step, side // step, width, device=device)
    places = (5, 11)  # by which the tokens move, down and to the right
    pixels = tuple(step * place for place in places)
    for precision in ("float32", "tf32") if settings.cuda else ("float32",):
        tf32 = precision == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        with torch.no_grad():
            moved = tokens.roll(places, (1, 2))
            pairs = {
                "conv": (conv(images).roll(places, (2, 3)), conv(images.roll(pixels, (2, 3)))),
                "linear": (linear(tokens).roll(places, (1, 2)), linear(moved)),
                "norm": (norm(tokens).roll(places, (1, 2)), norm(moved)),
            }
        for name, (before, after) in pairs.items():
            equal = _percent(before == after)
            yield Measured(f"bits by place/{name}/{precision}", equal, "% of numbers", precision)
