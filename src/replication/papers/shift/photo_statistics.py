"""What the choice of grids, and a position off Fourier phases, meet in real photographs; ours.

Neither needs a trained model: choices are those of untrained models of the papers' size, and the
spectra are those of the photographs themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.transforms import functional

from replication.context import Context, Values
from replication.images.transforms import normalization
from replication.measures.parameters import architectures
from replication.measures.photographs import Photographs, centres, photographs
from replication.papers.shift.degenerate_phases import WEAK
from vitrail.extensions.fourier_recentering import strength
from vitrail.measures.selection_margins import SelectionMargins, selection_margins
from vitrail.shift.energies import correlation_energies, projection_energies
from vitrail.shift.polyphase import TIE_RTOL, fixed_point, full_precision, polyphase_energies
from vitrail.shift.selection import (
    PerLayerSelection,
    PerStageSelection,
    WindowChoice,
    window_energies,
)


def choices(
    context: Context,
    models: Mapping[str, Mapping[str, Any]],
    images: int = 1000,
    batch_size: int = 20,
) -> Values:
    """Measure how clearly untrained models choose among the grids of photographs.

    Only choices up to the anchor depend on where an image is shifted to, so each pass ends there.
    The short side of each photograph is scaled to the model's side, its centre is cut out, and
    normalised by the dataset's mean and standard deviation.

    Args:
        context: where to measure; its seed makes the weights, its first dataset has the
            photographs.
        models: fields of `replication.measures.parameters.Architecture` by label, of models whose
            `selection` is ``paper`` or ``fast``.
        images: how many photographs.
        batch_size: of one pass.

    Returns:
        for each label ``"<label>/margin/..."`` as `SelectionMargins.summary`, ``"<label>/equal"``
        and ``"<label>/near"``, the number of photographs with a choice whose best two scores are
        equal, and differ by a part of the largest that is above zero and at most `TIE_RTOL`; and
        ``photographs`` and ``sha256``.

    Raises:
        VitrailError: as `photographs`; or a model does not exist or refuses its arguments.
    """
    photos = photographs(context, images)
    values: dict[str, Any] = {}
    for label, architecture in architectures(models).items():
        model = architecture.build(context.seed).to(context.device).eval()
        side = architecture.side(model)
        batches = (_shown(batch, side, context) for batch in photos.batches(batch_size))
        margins, gaps = _choices(model, batches)
        summary = margins.summary()._asdict()
        values |= {f"{label}/margin/{key}": value for key, value in summary.items()}
        values[f"{label}/equal"] = int((gaps == 0).any(dim=1).sum())
        values[f"{label}/near"] = int(((gaps > 0) & (gaps <= TIE_RTOL)).any(dim=1).sum())
    return {**values, "photographs": len(photos), "sha256": photos.sha256}


def spectra(context: Context, images: int = 1000, side: int = 224, batch_size: int = 20) -> Values:
    """Count photographs whose position (`harmonic`) hangs on a small Fourier coefficient.

    They are scaled to `side` pixels, cut and normalised as for `choices`.

    Returns:
        ``weak``, percent of them of whose energy the weaker coefficient of one cycle has less than
        `WEAK` (`strength`); ``smallest``, the smallest such share of any; ``photographs`` and
        ``sha256``.

    Raises:
        VitrailError: as `photographs`.
    """
    photos = photographs(context, images)
    batches = (_shown(batch, side, context) for batch in photos.batches(batch_size))
    shares = torch.cat([strength(batch.double()) for batch in batches])
    return {
        "weak": 100 * (shares < WEAK).double().mean().item(),
        "smallest": shares.min().item(),
        "photographs": len(photos),
        "sha256": photos.sha256,
    }


def _shown(photos: Photographs, side: int, context: Context) -> Tensor:
    mean, std = normalization(context.datasets[0], "dataset")
    return functional.normalize(centres(photos, side), mean, std).to(context.device)


class _AnchoredError(Exception):
    """All that follows in a pass sees shifted images as one."""


@torch.inference_mode()
def _choices(model: nn.Module, batches: Iterator[Tensor]) -> tuple[SelectionMargins, Tensor]:
    """Return the margins of a model's choices on batches, and `_gaps` ``(images, choices)``."""
    every: list[Tensor] = []
    with selection_margins(model) as margins:
        found: list[Tensor] = []

        def watch(module: nn.Module, inputs: tuple[Any, ...], _: object) -> None:
            found.extend(_gaps(module, inputs))
            if margins.anchored:
                raise _AnchoredError

        # Behind those of the margins, so that these are recorded.
        watched = [
            module.register_forward_hook(watch)
            for module in model.modules()
            if isinstance(module, PerLayerSelection | PerStageSelection | WindowChoice)
        ]
        for batch in batches:
            found.clear()
            with suppress(_AnchoredError):
                model(batch)
            every.append(torch.stack(found, dim=1))
        for hook in watched:
            hook.remove()
    return margins, torch.cat(every)


def _gaps(module: nn.Module, inputs: tuple[Any, ...]) -> Iterator[Tensor]:
    """Yield the gap of the best two scores of each choice, over the largest, ``(B,)``."""
    for scores in _scores(module, *inputs):
        if scores[0].numel() > 1:
            first, second = scores.flatten(1).topk(2, dim=1).values.double().unbind(dim=1)
            yield (first - second) / first


def _scores(module: nn.Module, x: Tensor, of: Any, *_: object) -> Iterator[Tensor]:
    """Yield the scores ``(B, P, Q)`` by which a module chooses: `of` is a projection or windows."""
    with full_precision(x):
        if isinstance(module, WindowChoice):
            for window in of:
                yield polyphase_energies(window_energies(x, window).square(), window)
        elif isinstance(module, PerStageSelection):
            yield fixed_point(projection_energies(x, of)).sum(dim=(3, 4))
        else:
            yield correlation_energies(x, of)
