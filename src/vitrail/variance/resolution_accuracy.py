"""Classifiers at another image size (variance, Sec. "Rescaling Positional Embedding")."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from vitrail.errors import VitrailError, first_line
from vitrail.measures.accuracy import hits
from vitrail.measures.outputs import Batches, logits_of, out_of_memory
from vitrail.variance.rescaling import patch_positions, rescale_pos_embed, sharing_weights

CALIBRATIONS = {"UP(P)": "none", "UP(P) / sqrt(k)": "constant", "UP(P) / sqrt(k), exact k": "exact"}
"""Calibrations of `vitrail.variance.rescaling`, by the formula or text that tables show."""
NO_TABLE = "no table 'pos_embed'"


def right_at_size(
    model: nn.Module,
    batches: Batches,
    pixels: int,
    own_size: int,
    calibrations: Sequence[str] = tuple(CALIBRATIONS),
) -> dict[str, Tensor]:
    """Return, for each calibration, which images a model classifies correctly, ``(N,)`` bool.

    Source: variance, Sec. "Rescaling Positional Embedding". For a model that adds a table of
    positions, the keys are `calibrations`. Any other model classifies the images without a
    calibration; its one key is `NO_TABLE`.

    Args:
        model: a classifier in evaluation mode, of images of `own_size` pixels a side.
        batches: images ``(B, 3, pixels, pixels)`` with labels ``(B,)``.
        pixels: side of these images in pixels.
        own_size: side of the images that the model is made for, in pixels.
        calibrations: keys of `CALIBRATIONS`.

    Raises:
        VitrailError: the model takes no images of this size, or `logits_of` refuses its logits.
    """
    models = _at_size(model, pixels, own_size, calibrations)
    right: dict[str, list[Tensor]] = {name: [] for name in models}
    for images, labels in batches:
        judged: dict[nn.Module, Tensor] = {}
        for name, resized in models.items():
            if resized not in judged:
                judged[resized] = hits(logits_of(resized, images), labels)[:, 0]
            right[name].append(judged[resized])
    return {name: torch.cat(found) for name, found in right.items()}


def _at_size(
    model: nn.Module, pixels: int, own_size: int, calibrations: Sequence[str]
) -> dict[str, nn.Module]:
    """Return the model for images of `pixels` a side, by each calibration of its table.

    A model without a table has the one key `NO_TABLE`. At the model's own size the values are the
    model itself. (Table 3 of the variance paper has the constant there, too: `rescale_pos_embed`
    with `also_at_train_size`.)
    """
    rescaled = partial(rescale_pos_embed, model, pixels, antialias=False)
    ways = {name: partial(rescaled, calibration=CALIBRATIONS[name]) for name in calibrations}
    try:
        patch_positions(model)
    except VitrailError:
        ways = {NO_TABLE: partial(_as_it_is, model, pixels)}
    if pixels == own_size:
        return dict.fromkeys(ways, model)
    return {name: _taking(pixels, way) for name, way in ways.items()}


def _as_it_is(model: nn.Module, pixels: int) -> nn.Module:
    """Return the model for images of `pixels` a side by its own `set_input_size`, if it has one."""
    resized = sharing_weights(model)
    if hasattr(resized, "set_input_size"):
        resized.set_input_size(img_size=(pixels, pixels))
    return cast(nn.Module, resized)


def _taking(pixels: int, resize: Callable[[], nn.Module]) -> nn.Module:
    """Return the resized model; raises VitrailError if it takes no images of `pixels` a side."""
    try:
        model = resize()
        noise = torch.rand(1, 3, pixels, pixels, generator=torch.Generator().manual_seed(0))
        logits_of(model, noise)
    except VitrailError:
        raise  # it says already what to do
    except Exception as error:  # a model may raise anything about images that do not suit it
        if out_of_memory(error):
            raise
        raise VitrailError(
            f"the model takes no images of {pixels} pixels ({first_line(error)}): choose sizes "
            "that it takes"
        ) from None
    return model
