"""Shift consistency of a trained model on its validation split (shift, Eq. 25).

The measures are those of `vitrail.measures.consistency`. The random draws for an image depend on
the run's seed and the image's index in the split only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from math import inf
from typing import Any, Literal, get_args

import torch

from replication.context import Trained, Values, passes
from replication.images.transforms import eval_transform, normalization
from replication.measures.validation_split import validation
from replication.training.model_factory import Precision, autocast
from vitrail.errors import VitrailError, did_you_mean
from vitrail.measures import consistency as library
from vitrail.measures.consistency import Condition
from vitrail.measures.selection_margins import selection_margins

Mode = Literal["zero", "crop"]


def _circular_passes(given: Mapping[str, Any]) -> int:
    """Return the number of forward passes of an image: all shifts, and each view unshifted."""
    shared = {field.name: given[field.name] for field in fields(Condition) if field.name in given}
    named = (given["conditions"] or {"": {}}).values()
    conditions = [_condition({**shared, **own}) for own in named]
    views = {(condition.erase, condition.flip) for condition in conditions}
    return len(views) + 2 * given["pairs"] * len(conditions)


@passes(_circular_passes)
def circular_consistency(
    trained: Trained,
    batch_size: int = 128,
    pairs: int = 1,
    images: int | None = None,
    precision: Precision = "fp32",
    conditions: Mapping[str, Mapping[str, Any]] | None = None,
    **condition: Any,
) -> Values:
    """C-Cons: do predictions agree under two circular shifts (shift, Sec. 5.1, Eq. 25)?

    Args:
        trained: the model, its dataset and its seed.
        batch_size: images of a batch.
        pairs: pairs of shifts drawn for each image; the draws do not depend on the batch size.
            Shifts are in pixels of the network's input.
        images: how many images, spread evenly over the validation split; None is all.
        precision: in which the model runs.
        conditions: fields of `Condition` for each name; all are measured in one pass over the data.
        condition: fields of `Condition` that all `conditions` share, or those of the only one.

    Returns:
        ``top1`` (percent, before any shift), ``consistency`` (percent of pairs), ``bitwise``
        (percent of pairs with logits equal in every bit), ``max_logit_difference``,
        ``max_offset_pixels`` and ``max_erased_pixels`` (ranges of the draws), ``images``,
        ``pairs``; with `conditions` each as ``"<name>/<key>"``. Also ``margin/<key>``, the fields
        of `vitrail.measures.selection_margins.MarginSummary`, over all views of all conditions.

    Raises:
        VitrailError: a condition has an unknown field, or a value out of range.
    """
    each = {f"{name}/": own for name, own in (conditions or {}).items()} or {"": {}}
    named = {name: _condition({**condition, **own}) for name, own in each.items()}
    judged = validation(trained, None, batch_size, images)
    with selection_margins(trained.model) as margins, autocast(trained.device, precision):
        found = library.circular_consistencies(
            trained.model,
            judged.batches,
            named,
            pairs=pairs,
            seed=trained.seed,
            indices=judged.indices,
        )
    side = trained.recipe.data.image_size
    values: dict[str, Any] = {}
    for name, own in named.items():
        result = found[name]._asdict() | {
            "max_offset_pixels": library.pixels(own.max_offset, side),
            "max_erased_pixels": library.pixels(own.erase, side),
        }
        values |= {f"{name}{key}": value for key, value in result.items()}
    summary = margins.summary()._asdict()
    return values | {f"margin/{key}": value for key, value in summary.items()}


@passes(lambda given: len(given["modes"]) * (1 + 2 * given["pairs"]))
def standard_consistency(
    trained: Trained,
    modes: Sequence[Mode] = get_args(Mode),
    max_shift: int = 32,
    batch_size: int = 128,
    pairs: int = 1,
    images: int | None = None,
) -> Values:
    """S-Cons: do predictions agree under two standard shifts, which change the border's content?

    Source: shift, Sec. 5.2.

    The mode ``zero`` (Sec. 5.2 on CIFAR) shifts the image that the network would see by up to
    `max_shift` either way, on each axis; pixels that are left empty are black. ``crop`` (on
    ImageNet; Zhang, "Making Convolutional Networks Shift-Invariant Again", 2019) cuts both views
    out of the resized image's centre, which is `max_shift` wider than the network's input: they
    differ by up to `max_shift` either way. They contain no padding, except where timm's crop mode
    ``border`` pads with the mean. `max_shift` is in pixels of an image with sides of 224; images of
    other sizes are shifted by the same fraction of their side, rounded down. `batch_size`, `pairs`
    and `images` are as in `circular_consistency`.

    Returns:
        for each mode ``"<mode>/<key>"``: ``top1`` (percent, of the unshifted or centrally cropped
        images), ``consistency``, ``bitwise``, ``max_logit_difference``, ``images`` and ``pairs``
        as in `circular_consistency`, and ``max_shift_pixels``, in pixels of this network's input.

    Raises:
        VitrailError: there is no such mode, or the crops do not fit into the resized image.
    """
    limit = library.standard_shift(trained.recipe.data.image_size, max_shift)
    mean, std = normalization(trained.info, trained.recipe.data.normalization)
    measures: dict[str, Callable[..., library.Consistency]] = {
        "zero": partial(
            library.zero_padded_consistency, black=-torch.tensor(mean) / torch.tensor(std)
        ),
        "crop": library.crop_consistency,
    }
    values: dict[str, float] = {}
    for mode in modes:
        if mode not in measures:
            raise VitrailError(f"there is no mode '{mode}'{did_you_mean(mode, measures)}")
        margin = limit if mode == "crop" else 0
        transform = eval_transform(trained.recipe, trained.info, margin=margin)
        indices, _, batches = validation(trained, transform, batch_size, images)
        found = measures[mode](
            trained.model, batches, limit, pairs=pairs, seed=trained.seed, indices=indices
        )
        values |= {f"{mode}/{key}": value for key, value in found._asdict().items()}
        values[f"{mode}/max_shift_pixels"] = limit
    return values


@passes(lambda given: 1 + min(given["side"] ** 2, given["shifts"] or inf))  # if all are kept
def worst_shift(
    trained: Trained, batch_size: int = 128, images: int | None = None, shifts: int | None = None
) -> Values:
    """Measure the share of images that keep their prediction under every circular shift.

    `batch_size` is the number of shifted views in a batch; `images` is as in
    `circular_consistency`. `shifts` is the number of shifts that are tried, drawn from all without
    repetition, the same for all images; None is all. After the first shift that changes an image's
    prediction, its other shifts are not tried.

    Returns:
        ``consistency`` (percent of images), ``images`` and ``shifts`` (their numbers).
    """
    _, _, batches = validation(trained, None, batch_size, images)
    found = library.worst_shift(
        trained.model, batches, shifts, batch_size=batch_size, seed=trained.seed
    )
    return found._asdict()


def _condition(values: Mapping[str, Any]) -> Condition:
    known = [field.name for field in fields(Condition)]
    for name in sorted(values.keys() - known):
        raise VitrailError(
            f"circular_consistency has no argument '{name}'{did_you_mean(name, known)}"
        )
    return Condition(**values)
