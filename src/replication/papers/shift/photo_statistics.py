"""Statistics of real photographs that matter for choices of grids and for Fourier phases; ours.

No trained model is needed: choices are those of untrained models of the papers' size, and spectra
are those of the photographs themselves.
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

    Only the choices up to the anchor depend on an image's shift, so each forward pass ends there.
    The short side of each photograph is scaled to the model's side, the centre is cropped, and
    normalised by the dataset's mean and standard deviation.

    Args:
        context: device, seed of the weights, and as its first dataset the photographs.
        models: fields of `replication.measures.parameters.Architecture` for each label, of models
            whose `selection` is ``paper`` or ``fast``.
        images: how many photographs.
        batch_size: photographs in a forward pass.

    Returns:
        for each label ``"<label>/margin/..."`` as `SelectionMargins.summary`;
        ``"<label>/equal"``, the number of photographs with a choice whose best two scores are
        equal; ``"<label>/near"``, the number with a choice whose best two scores differ, but by at
        most the fraction `TIE_RTOL` of the best. Also ``photographs`` and ``sha256``.

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
    """Count photographs whose position (`harmonic`) depends on a small Fourier coefficient.

    They are scaled to `side` pixels, cropped and normalised as for `choices`.

    Returns:
        ``weak``, percent of photographs in which the weaker of the two coefficients of one cycle
        has less than the share `WEAK` of the energy (`strength`); ``smallest``, the smallest share
        of a photograph; ``photographs`` and ``sha256``.

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
    """Raised to end a forward pass at the anchor, after which the shift has no influence."""


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

        # Registered after the hooks of the margins, which must record a choice first.
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
    """Yield for each choice the gap of its best two scores, relative to the best: ``(B,)``."""
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
