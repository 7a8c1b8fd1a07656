"""A row of the cross table: one trained model, put to the tests of all four papers.

`vitrail audit` measures with the same functions. The one idea: a test that is not defined for a
model is refused by the measure itself, in a sentence. `invariances` keeps the sentence beside the
empty value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.utils.data import Subset

from vitrail.errors import REFUSED, VitrailError, first_line, sentence
from vitrail.images.loading import EvaluationSamples, evenly_spread
from vitrail.images.opening import build
from vitrail.images.transforms import eval_transform
from vitrail.measures.accuracy import hits
from vitrail.measures.consistency import (
    circular_consistency,
    standard_consistency,
    validation_batches,
)
from vitrail.measures.context import Trained, Values, out_of_memory, passes
from vitrail.measures.fractional import fractional_consistency
from vitrail.measures.permutable import permutable
from vitrail.measures.position_shap.shapley import PositionShap
from vitrail.measures.position_shap.sweep import default_permutations, sweep
from vitrail.octic.group import ELEMENTS, transform
from vitrail.octic.rotation import EQUAL
from vitrail.variance.rescaling import patch_positions, rescale_pos_embed, sharing_weights

CROP_PCT = 0.875  # the resized image is 8/7 as wide as the crops that are shifted in it
CALIBRATIONS = {"UP(P)": "none", "UP(P) / sqrt(k)": "iid", "UP(P) / sqrt(k), exact k": "exact"}
"""Calibrations of a larger table of positions (`vitrail.variance.rescaling`), by what they do."""
PLAIN, RESCALED, *_ = CALIBRATIONS
NO_TABLE = "no table of positions"
TURNS = ("r", "rr", "rrr")
MIRROR = "m"


@dataclass(frozen=True)
class View:
    """How a model's evaluation shows an image, in timm's words."""

    image_size: int
    interpolation: str
    crop_pct: float
    crop_mode: str
    normalization: Literal["dataset", "inception", "none"] = "dataset"


@dataclass(frozen=True)
class Viewed:
    """What the measures of this module ask of a recipe."""

    data: View


@dataclass(frozen=True)
class Views:
    """What a model makes of the eight views of N images: turned by quarters, mirrored or both.

    Attributes:
        kept: for each of `ELEMENTS`, whether the prediction is that of the upright image, (8, N).
        right: for each of `ELEMENTS`, whether the prediction is the label, (8, N).
        equal: whether no logit of any view differs by more than `EQUAL` of the largest, (N,).
    """

    kept: Tensor
    right: Tensor
    equal: Tensor


def eight_views(trained: Trained, batch_size: int = 128, images: int | None = None) -> Views:
    """Show a model all eight views of each image (octic, Sec. 4.1, which draws one of four turns).

    `images` are spread evenly over the validation split; None is all.
    """
    view = eval_transform(trained.recipe, trained.info)
    kept, right, equal = [], [], []
    for _, batch, labels in validation_batches(trained, view, batch_size, images):
        upright = trained.logits(batch)
        logits = torch.stack([trained.logits(transform(batch, name)) for name in ELEMENTS])
        kept.append(logits.argmax(dim=2) == upright.argmax(dim=1))  # (8, B)
        right.append(logits.argmax(dim=2) == labels)
        changes = (logits - upright).abs().amax(dim=2)
        equal.append((changes <= EQUAL * upright.abs().amax(dim=1)).all(dim=0))
    return Views(torch.cat(kept, dim=1), torch.cat(right, dim=1), torch.cat(equal))


def crops_consistency(trained: Trained, batch_size: int = 128, images: int | None = None) -> Values:
    """Measure S-Cons of crops (shift, Sec. 5.2), as `standard_consistency` does.

    The image is resized to at least 8/7 of the crop's side, as many models' own crop is too tight
    to be shifted.
    """
    data = trained.recipe.data
    wider = View(
        data.image_size,
        data.interpolation,
        min(data.crop_pct, CROP_PCT),
        data.crop_mode,
        data.normalization,
    )
    shown = replace(trained, recipe=Viewed(wider))
    return standard_consistency(shown, ["crop"], batch_size=batch_size, images=images)


def p_shap(
    trained: Trained, batch_size: int = 128, images: int | None = None, resume: Path | None = None
) -> PositionShap:
    """Sweep over validation images for P-SHAP (position, Sec. 3); `resume` is that of `sweep`.

    Raises:
        VitrailError: the model's positions cannot be permuted, or it classifies no image correctly.
    """
    model = permutable(trained.model)
    dataset: Any = build(trained.info, "val", trained.data_root, trained.seed)
    chosen = Subset(dataset, evenly_spread(len(dataset), images))
    result = sweep(
        model,
        EvaluationSamples(chosen, eval_transform(trained.recipe, trained.info)),
        batch_size=batch_size,
        seed=trained.seed,
        device=trained.device,
        workers=trained.workers,
        resume=resume,
    )
    if not result.correct.any():
        raise VitrailError(
            "the model classifies none of the images correctly, and P-SHAP is of those: give "
            "images of its own classes"
        )
    return result


def right_at_size(
    trained: Trained,
    pixels: int,
    batch_size: int = 128,
    images: int | None = None,
    calibrations: Sequence[str] = tuple(CALIBRATIONS),
) -> dict[str, Tensor]:
    """Say which images of `pixels` a side a model classifies correctly, (N,) bool.

    Source: variance, Sec. "Rescaling Positional Embedding". A model that adds a table of positions
    has an entry for each of the `calibrations` of `CALIBRATIONS`; any other is shown the larger
    images as it is, under the name `NO_TABLE`.

    Raises:
        VitrailError: the model takes no images of that size.
    """
    models = _at_size(trained, pixels, calibrations)
    right: dict[str, list[Tensor]] = {name: [] for name in models}
    view = eval_transform(trained.recipe, trained.info, pixels)
    for _, batch, labels in validation_batches(trained, view, batch_size, images):
        judged: dict[nn.Module, Tensor] = {}
        for name, model in models.items():
            if model not in judged:
                judged[model] = hits(replace(trained, model=model).logits(batch), labels)[:, 0]
            right[name].append(judged[model])
    return {name: torch.cat(found) for name, found in right.items()}


def _at_size(trained: Trained, pixels: int, calibrations: Sequence[str]) -> dict[str, nn.Module]:
    """The model for images of another size: by each calibration of its table, if it has one."""
    rescaled = partial(rescale_pos_embed, trained.model, pixels, antialias=False)
    ways = {name: partial(rescaled, calibration=CALIBRATIONS[name]) for name in calibrations}
    try:
        patch_positions(trained.model)
    except VitrailError:
        ways = {NO_TABLE: partial(_as_it_is, trained.model, pixels)}
    if pixels == trained.recipe.data.image_size:
        return dict.fromkeys(ways, trained.model)
    return {name: _taking(trained, pixels, way) for name, way in ways.items()}


def _as_it_is(model: nn.Module, pixels: int) -> nn.Module:
    """Return the model for images of `pixels` a side by its own `set_input_size`, if it has one."""
    resized = sharing_weights(model)
    if hasattr(resized, "set_input_size"):
        resized.set_input_size(img_size=(pixels, pixels))
    return cast(nn.Module, resized)


def _taking(trained: Trained, pixels: int, resize: Callable[[], nn.Module]) -> nn.Module:
    """Return the resized model; raises VitrailError if it takes no images of `pixels` a side."""
    try:
        model = resize()
        noise = torch.rand(1, 3, pixels, pixels, generator=torch.Generator().manual_seed(0))
        replace(trained, model=model).logits(noise)
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


def _passes(given: Mapping[str, Any]) -> float:
    """Three passes each for circular, standard and fractional shifts, nine for views, P-SHAP's.

    Plus two for each larger size of image, and two of one image of noise, in proportion to its
    pixels. This is an upper bound, as some models refuse larger images.
    """
    own = 3 + 3 + 3 + 1 + len(ELEMENTS) + 1 + default_permutations(given["images"])
    larger = sum(2 * factor**2 for factor in given["factors"])
    return own + larger * (1 + 1 / given["images"])


@passes(_passes)
def invariances(
    trained: Trained,
    batch_size: int = 128,
    images: int | None = None,
    fraction: float = 0.25,
    factors: Sequence[float] = (1.5, 2.0),
) -> Values:
    """Put a trained classifier to the tests of all four papers: a row of the cross table.

    Source: shift, Eq. 25; octic, Sec. 4.1; position, Sec. 3; variance, Sec. "Rescaling
    Positional Embedding". `images` are spread evenly over the validation split; None is all.

    Returns:
        in percent of images ``top1``; ``circular`` (C-Cons), ``standard`` (S-Cons of crops) and
        ``fractional``, by `fraction` of a pixel as a camera sees it, whose predictions agree;
        ``turns``, ``mirror`` and ``views``, whose prediction all three quarter turns keep, the
        mirror, and all eight views; ``size/<factor>`` and ``size/<factor>/rescaled``, top-1 at
        `factors` of the side, by the usual resize of the positions and divided by sqrt(k). Then
        ``p_shap``, ``p_shap/low`` and ``p_shap/high`` (95 %), and ``images``. What is not defined
        for the model is None, with the sentence that refuses it as ``<key> refused``.
    """
    judged_on: dict[str, Any] = {"batch_size": batch_size, "images": images}
    views = eight_views(trained, **judged_on)
    turned, mirrored = (views.kept[list(map(ELEMENTS.index, names))] for names in (TURNS, MIRROR))
    shifted = fractional_consistency(trained, fourier=(), camera=(fraction,), **judged_on)
    values: dict[str, Any] = {
        "top1": _percent(views.right[ELEMENTS.index("e")]),
        "circular": circular_consistency(trained, **judged_on)["consistency"],
        "standard": crops_consistency(trained, **judged_on)["crop/consistency"],
        "fractional": shifted[f"camera/{fraction:g}/consistency"],
        "turns": _percent(turned.all(dim=0)),
        "mirror": _percent(mirrored.all(dim=0)),
        "views": _percent(views.kept.all(dim=0)),
        "images": views.kept.shape[1],
    }
    values |= _or_refused(
        ["p_shap", "p_shap/low", "p_shap/high"], lambda: _p_shap(trained, judged_on)
    )
    side = trained.recipe.data.image_size
    for factor in factors:
        plain, rescaled = f"size/{factor:g}", f"size/{factor:g}/rescaled"
        measure = partial(_larger, trained, round(factor * side), plain, rescaled, judged_on)
        values |= _or_refused([plain, rescaled], measure)
    return values


def _p_shap(trained: Trained, judged_on: Mapping[str, Any]) -> dict[str, Any]:
    result = p_shap(trained, **judged_on)
    low, high = result.interval or (None, None)
    return {"p_shap": result.mean, "p_shap/low": low, "p_shap/high": high}


def _larger(
    trained: Trained, pixels: int, plain: str, rescaled: str, judged_on: Mapping[str, Any]
) -> dict[str, Any]:
    right = right_at_size(trained, pixels, **judged_on, calibrations=(PLAIN, RESCALED))
    if NO_TABLE not in right:
        return {plain: _percent(right[PLAIN]), rescaled: _percent(right[RESCALED])}

    def require_table() -> dict[str, Any]:
        patch_positions(trained.model)
        return {}

    return {plain: _percent(right[NO_TABLE]), **_or_refused([rescaled], require_table)}


def _or_refused(keys: Sequence[str], measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The values of a measure; or None for each of its keys, and why it does not apply."""
    try:
        return measure()
    except VitrailError as error:
        why = sentence(error)
        return dict.fromkeys(keys) | {f"{key}{REFUSED}": why for key in keys}


def _percent(right: Tensor) -> float:
    return 100 * right.double().mean().item()
