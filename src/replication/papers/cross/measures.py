"""A row of the cross table: one trained model in the tests of all four papers.

`vitrail audit` measures with the same functions of the library. If a test is not defined for a
model, its measure raises an error with the reason. `invariances` returns the reason and None
instead of the value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from replication.context import Trained, Values, passes
from replication.images.transforms import eval_transform, normalization
from replication.measures.consistency import circular_consistency
from replication.measures.fractional import fractional_consistency
from replication.measures.validation_split import validation
from vitrail.errors import REFUSED, VitrailError, sentence
from vitrail.measures.consistency import CROP_PCT, crop_consistency, standard_shift
from vitrail.measures.loading import evaluation_view
from vitrail.measures.position_shap.measure import position_shap
from vitrail.measures.position_shap.sweep import default_permutations
from vitrail.octic.group import ELEMENTS
from vitrail.octic.turns import eight_views
from vitrail.variance.rescaling import patch_positions
from vitrail.variance.resolution_accuracy import CALIBRATIONS, NO_TABLE, right_at_size

PLAIN, RESCALED, *_ = CALIBRATIONS
TURNS = ("r", "rr", "rrr")
MIRROR = "m"


def _passes(given: Mapping[str, Any]) -> float:
    """Return an upper bound of the forward passes of an image, at the recipe's size.

    Three each for circular, standard and fractional shifts, one plus eight for views, and those of
    P-SHAP. For each larger size, two passes and two of one image of noise, in proportion to the
    number of pixels. It is a bound, as some models refuse larger images.
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
    """Measure a trained classifier by the tests of all four papers: a row of the cross table.

    Source: shift, Eq. 25; octic, Sec. 4.1; position, Sec. 3; variance, Sec. "Rescaling
    Positional Embedding". `images` are spread evenly over the validation split; None is all.

    Returns:
        in percent of images: ``top1``; ``circular`` (C-Cons), ``standard`` (S-Cons of crops) and
        ``fractional`` (camera shift by `fraction` of a pixel), the share of equal predictions;
        ``turns``, ``mirror`` and ``views``, the share whose prediction stays under all three
        turns by multiples of 90 degrees, under mirroring, and under all eight views;
        ``size/<factor>`` and ``size/<factor>/rescaled``, top-1 on images enlarged by `factors`,
        with positions resized as usual, and also divided by sqrt(k). Then ``p_shap``,
        ``p_shap/low`` and ``p_shap/high`` (95 %), and ``images``. A value that is not defined for
        the model is None, and ``<key> refused`` is the reason.
    """
    judged_on: dict[str, Any] = {"batch_size": batch_size, "images": images}
    views = eight_views(trained.model, validation(trained, **judged_on).batches)
    turned, mirrored = (views.kept[list(map(ELEMENTS.index, names))] for names in (TURNS, MIRROR))
    shifted = fractional_consistency(trained, fourier=(), camera=(fraction,), **judged_on)
    values: dict[str, Any] = {
        "top1": _percent(views.right[ELEMENTS.index("e")]),
        "circular": circular_consistency(trained, **judged_on)["consistency"],
        "standard": _crops_consistency(trained, judged_on),
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


def _crops_consistency(trained: Trained, judged_on: Mapping[str, Any]) -> float:
    """Return S-Cons of crops, in an image that is resized to at least 8/7 of a crop's side.

    In many models' own evaluation the resized image is too small to shift a crop in it.
    """
    data = trained.recipe.data
    mean, std = normalization(trained.info, data.normalization)
    limit = standard_shift(data.image_size)
    view = evaluation_view(
        data.image_size,
        interpolation=data.interpolation,
        crop_pct=min(data.crop_pct, CROP_PCT),
        crop_mode=data.crop_mode,
        mean=mean,
        std=std,
        margin=limit,
    )
    indices, _, batches = validation(trained, view, **judged_on)
    return crop_consistency(
        trained.model, batches, limit, seed=trained.seed, indices=indices
    ).consistency


def _p_shap(trained: Trained, judged_on: Mapping[str, Any]) -> dict[str, Any]:
    result = position_shap(
        trained.model,
        validation(trained, **judged_on).samples,
        batch_size=judged_on["batch_size"],
        seed=trained.seed,
        workers=trained.workers,
    )
    low, high = result.require_correct().interval or (None, None)
    return {"p_shap": result.mean, "p_shap/low": low, "p_shap/high": high}


def _larger(
    trained: Trained, pixels: int, plain: str, rescaled: str, judged_on: Mapping[str, Any]
) -> dict[str, Any]:
    view = eval_transform(trained.recipe, trained.info, pixels)
    batches = validation(trained, view, **judged_on).batches
    own_size = trained.recipe.data.image_size
    right = right_at_size(trained.model, batches, pixels, own_size, (PLAIN, RESCALED))
    if NO_TABLE not in right:
        return {plain: _percent(right[PLAIN]), rescaled: _percent(right[RESCALED])}

    def require_table() -> dict[str, Any]:
        patch_positions(trained.model)
        return {}

    return {plain: _percent(right[NO_TABLE]), **_or_refused([rescaled], require_table)}


def _or_refused(keys: Sequence[str], measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return a measure's values; if it raises VitrailError, None and the reason for each key."""
    try:
        return measure()
    except VitrailError as error:
        why = sentence(error)
        return dict.fromkeys(keys) | {f"{key}{REFUSED}": why for key in keys}


def _percent(right: Tensor) -> float:
    return 100 * right.double().mean().item()
