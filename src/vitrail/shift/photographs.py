"""What the choice of grids, and a position off Fourier phases, meet in real photographs; ours.

Neither needs a trained model: margins are those of untrained models of the papers' size, and the
spectra are those of the photographs themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torchvision.transforms import functional

from vitrail.images.transforms import normalization
from vitrail.measures.architecture import architectures
from vitrail.measures.context import Context, Values
from vitrail.measures.margins import selection_margins
from vitrail.measures.photographs import centres, photographs
from vitrail.shift.harmonic import strength
from vitrail.shift.position_limits import WEAK


def margins(
    context: Context,
    models: Mapping[str, Mapping[str, Any]],
    images: int = 1000,
    batch_size: int = 20,
) -> Values:
    """Measure by how much untrained models decide on the grids of photographs.

    The short side of each photograph is scaled to the model's side, its centre is cut out, and
    normalised by the dataset's mean and standard deviation.

    Args:
        context: where to measure; its seed makes the weights, its first dataset has the
            photographs.
        models: fields of `vitrail.measures.architecture.Architecture` by label.
        images: how many photographs.
        batch_size: of one pass.

    Returns:
        ``"<label>/margin/..."`` as `SelectionMargins.summary`; ``photographs`` and ``sha256``.

    Raises:
        VitrailError: as `photographs`; or a model does not exist or refuses its arguments.
    """
    photos = photographs(context, images)
    values: dict[str, Any] = {}
    for label, architecture in architectures(models).items():
        model = architecture.build(context.seed).to(context.device).eval()
        side = architecture.side(model)
        with selection_margins(model) as found, torch.inference_mode():
            for batch in photos.batches(batch_size):
                model(_normalised(centres(batch, side), context).to(context.device))
        values |= {f"{label}/{key}": value for key, value in found.summary().items()}
    return {**values, "photographs": len(photos), "sha256": photos.sha256}


def spectra(context: Context, images: int = 1000, side: int = 224, batch_size: int = 20) -> Values:
    """Count photographs whose position (`harmonic`) hangs on a small Fourier coefficient.

    Photographs are scaled to `side` and cut as by `margins`.

    Returns:
        ``weak``, percent of them of whose energy the weaker coefficient of one cycle has less than
        `WEAK` (`strength`); ``smallest``, the smallest such share of any; ``photographs`` and
        ``sha256``.

    Raises:
        VitrailError: as `photographs`.
    """
    photos = photographs(context, images)
    shares = torch.cat(
        [
            strength(_normalised(centres(batch, side).double(), context))
            for batch in photos.batches(batch_size)
        ]
    )
    return {
        "weak": 100 * (shares < WEAK).double().mean().item(),
        "smallest": shares.min().item(),
        "photographs": len(photos),
        "sha256": photos.sha256,
    }


def _normalised(images: Tensor, context: Context) -> Tensor:
    mean, std = normalization(context.datasets[0], "dataset")
    return functional.normalize(images, mean, std)
