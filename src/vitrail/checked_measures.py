"""The measures of a model as `vitrail` exports them: a mistake in model or data is one sentence.

Each function has the arguments and the result of the measure that it calls. Beside the measure's
own checks, it refuses what would silently give a wrong number, and turns an error of torch into a
`VitrailError` that says what the measure needs. The replication calls the measures themselves,
because its own loaders make their data.
"""

# decides no number: it only raises and warns

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import wraps
from inspect import getdoc, signature
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from vitrail.errors import TRAINING_MODE, VitrailError, first_line
from vitrail.measures import consistency, equivariance
from vitrail.measures.outputs import UNKNOWN, Batches, out_of_memory, require_batch
from vitrail.measures.permutable import Permutable, PermutablePositions, permutable
from vitrail.measures.position_shap import measure
from vitrail.measures.position_shap.shapley import PositionShap
from vitrail.octic import turns

Given = ParamSpec("Given")
Result = TypeVar("Result")

FEWEST = 20
"""Images that P-SHAP must be a mean over to have an interval. The interval is that of a normal
distribution; with fewer images, Student's is over 7 % wider."""
MODEL = "a torch.nn.Module that returns logits (B, classes)"
SQUARES = f"{MODEL}, and square images of its size and precision"


def _checked(
    run: Callable[Given, Result],
    check: Callable[[dict[str, Any]], None],
    needs: str,
    refused: str,
    judge: Callable[[Result], None] = lambda result: None,
    explain: Callable[[dict[str, Any]], None] = lambda given: None,
) -> Callable[Given, Result]:
    """Return a measure that first checks its arguments, and then judges its result.

    `check` takes the arguments by name, and may replace them; it raises a `VitrailError`. `needs`
    says what the measure needs, for the error if it fails; `refused` says what `check` refuses, for
    the docstring. `judge` warns of a result that cannot be trusted. `explain` takes the arguments
    with which the measure failed, and raises a `VitrailError` if it finds the reason.
    """

    @wraps(run)
    def call(*args: Given.args, **options: Given.kwargs) -> Result:
        given = signature(run).bind(*args, **options)
        try:
            check(given.arguments)
            result = run(*given.args, **given.kwargs)
        except VitrailError:
            raise
        except Exception as error:
            if out_of_memory(error):
                raise
            explain(given.arguments)
            raise VitrailError(
                f"the model cannot be measured on these data ({type(error).__name__}: "
                f"{first_line(error)}): give {needs}"
            ) from error
        judge(result)
        return result

    call.__module__ = __name__
    call.__doc__ = (
        f"{getdoc(run)}\n\nAs `vitrail` exports it, the function also refuses {refused}.\n"
        "An error of torch becomes a VitrailError that says what the measure needs.\n"
    )
    return call


def require_evaluation_mode(model: nn.Module) -> None:
    """Raise a VitrailError if a part of a model is in training mode.

    An exported program has no mode: its flag is set, and it cannot be changed.
    """
    exported = isinstance(model, torch.fx.GraphModule)
    if not exported and any(module.training for module in model.modules()):
        raise VitrailError(TRAINING_MODE)


class _Observed(nn.Module):
    """A classifier of which the number of classes is noted when it runs."""

    classes: int

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.training = False

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        self.classes = logits.shape[-1]
        return logits


def _require_labels(labels: Tensor, lowest: int, classes: int) -> None:
    """Raise a VitrailError unless each label is a whole number from `lowest` to `classes` - 1."""
    may = f"{UNKNOWN} (not known) or " if lowest == UNKNOWN else ""
    if not _is_whole(labels):
        kind = str(labels.dtype).removeprefix("torch.")
        raise VitrailError(f"the labels are {kind}: give whole numbers, {may}0 to {classes - 1}")
    labels = labels.long()
    wrong = labels[(labels < lowest) | (labels >= classes)]
    if len(wrong):
        raise VitrailError(
            f"a label is {wrong[0].item()}, but the model has {classes} classes: give labels of "
            f"its own classes, {may}0 to {classes - 1}"
        )


def _checked_batches(
    batches: Batches, model: _Observed, lowest: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of square images with labels from `lowest`.

    The labels of a batch are checked after the model has run on it, when its classes are known.
    """
    images = None
    for batch in batches:
        images, labels = require_batch(batch)
        _require_square(images)
        if len(labels) != len(images):
            raise VitrailError(
                f"a batch has {len(images)} images and {len(labels)} labels: give one label for "
                "each image"
            )
        yield images, labels
        _require_labels(labels, lowest, model.classes)
    if images is None:
        raise VitrailError("the data has no batches: give at least one image")


def _require_square(images: Tensor) -> None:
    if images.ndim != 4 or not len(images) or images.shape[-1] != images.shape[-2]:
        raise VitrailError(
            f"the images have shape {tuple(images.shape)}: give at least one square image, "
            "(B, 3, S, S)"
        )


def _check_consistency(given: dict[str, Any]) -> None:
    if given.get("pairs", 1) < 1:
        raise VitrailError(f"pairs is {given['pairs']}; give at least 1")
    require_evaluation_mode(given["model"])
    if isinstance(given["images"], Tensor):
        _require_square(given["images"])
        return
    given["model"] = _Observed(given["model"])
    given["images"] = _checked_batches(given["images"], given["model"], UNKNOWN)


def _check_equivariance(given: dict[str, Any]) -> None:
    if not isinstance(given["x"], Tensor):
        raise VitrailError(f"x is of type {type(given['x']).__name__}: give one tensor")
    if not isinstance(given["group"], equivariance.Group):
        raise VitrailError(
            f"the group is of type {type(given['group']).__name__}: give "
            "vitrail.measures.equivariance.Group(elements, on_input), or "
            "vitrail.shift.conversion.random_shifts(images, shifts=4, seed=0) of the same images"
        )


def _check_turns(given: dict[str, Any]) -> None:
    require_evaluation_mode(given["model"])
    if isinstance(given["batches"], Tensor):
        raise VitrailError(
            "images without labels have no accuracy: give batches of images (B, 3, S, S) with "
            "labels (B,), such as DataLoader(data, batch_size=128)"
        )
    given["model"] = _Observed(given["model"])
    given["batches"] = _checked_batches(given["batches"], given["model"], 0)


def _check_position_shap(given: dict[str, Any]) -> None:
    """Refuse a list of batches, and a model that does not permute positions image by image.

    `position_shap` itself checks the mode and the labels.
    """
    match given["data"]:
        case [(Tensor(ndim=4), Tensor()), *_]:
            raise VitrailError(
                "the data are batches, and P-SHAP takes single images: give the data set of "
                "(image, label), or DataLoader(dataset, batch_size=...) of it"
            )
    model = permutable(given["model"])
    if not isinstance(model, PermutablePositions):  # timm's models are known to permute so
        _require_own_permutations(model, given["data"])


@torch.inference_mode()
def _require_own_permutations(model: Permutable, data: measure.Data) -> None:
    """Raise a VitrailError if the images of a batch do not have permutations of their own.

    A first sample that is no image is left to the measure.
    """
    if model.positions < 2:
        raise VitrailError(
            f"the model has {model.positions} position, which cannot be permuted: give the table "
            "with a row for each position"
        )
    image = cast(Any, measure.samples_of(data))[0][0]
    if not isinstance(image, Tensor) or image.ndim != 3:
        return
    require_evaluation_mode(cast(nn.Module, model))
    place = next(cast(nn.Module, model).parameters(), image).device
    images, order = image.to(place).expand(2, -1, -1, -1), torch.arange(model.positions)
    orders = torch.stack([order, order.flip(0)]).to(place)
    alone = torch.cat([model(images[:1], own[None]) for own in orders])
    try:
        together = model(images, orders)
    except Exception as error:
        if out_of_memory(error):
            raise
        raise VitrailError(
            "the model runs on one image, but not on two whose positions are permuted differently "
            f"({type(error).__name__}: {first_line(error)}): its table has a row for each image "
            "then, (B, N, C); add it to the tokens as it is, and if the model interpolates its "
            "table, give images of the size that the table is for"
        ) from error
    exact = alone.dtype in (torch.float32, torch.float64)
    if (together - alone).abs().max() > (1e-4 if exact else 1e-2) * alone.abs().max():
        raise VitrailError(
            "two images whose positions are permuted differently have other logits together than "
            "alone, so one permutation is used for both: let the model's forward use all rows of "
            "its table, (B, N, C), instead of table[0], and `permutation`, (B, N), likewise"
        )


def _require_samples(given: dict[str, Any]) -> None:
    """Raise a VitrailError unless the first sample is an image with a whole number as its label."""
    samples: Any = measure.samples_of(given["data"])
    try:
        sample = samples[0]
    except Exception as error:
        raise VitrailError(
            f"the first sample of the data cannot be read ({type(error).__name__}: "
            f"{first_line(error)}): mend it or leave it out"
        ) from error
    match sample:
        case (Tensor(ndim=3), Tensor(ndim=0) as label) if _is_whole(label):
            return
        case (Tensor(ndim=3), int() | np.integer()):
            return
        case (Tensor(ndim=3), label):
            told = f"{label!r}"
            if isinstance(label, Tensor):
                told = f"a tensor of {label.dtype} and shape {tuple(label.shape)}"
            raise VitrailError(
                f"the label of the first image is {told}: give a whole number for each image, or "
                f"{UNKNOWN} if it is not known"
            )
    raise VitrailError(
        "the first sample of the data is not a pair of an image as a tensor (3, H, W) and a whole "
        "number: give such pairs"
    )


def _is_whole(labels: Tensor) -> bool:
    return not (labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool)


def _judge_position_shap(result: PositionShap) -> None:
    """Warn if no image or too few are classified correctly."""
    correct = int(result.correct.sum())
    if not correct:
        warnings.warn(
            "the model classifies none of the images correctly, so its P-SHAP is nan: give images "
            "of its own classes, or no labels",
            stacklevel=3,
        )
    elif correct < FEWEST and result.interval is not None:
        warnings.warn(
            f"P-SHAP is a mean over {correct} images; below {FEWEST} its interval is too narrow",
            stacklevel=3,
        )


REFUSED = "a model in training mode, images that are not square, labels of other classes"
circular_consistency = _checked(
    consistency.circular_consistency,
    _check_consistency,
    f"{SQUARES}, (n, 3, S, S) or in batches with labels (B,)",
    f"{REFUSED}, `pairs` below 1",
)
equivariance_error = _checked(
    equivariance.equivariance_error,
    _check_equivariance,
    "a module with one tensor as its input and one as its output, an x of its size, precision and "
    "device, and a group that acts on this x (random_shifts is for the images that it was given)",
    "an x that is no tensor",
)
accuracy_under_turns = _checked(
    turns.accuracy_under_turns,
    _check_turns,
    f"{SQUARES}, in batches (B, 3, S, S) with labels (B,)",
    REFUSED,
)
position_shap = _checked(
    measure.position_shap,
    _check_position_shap,
    f"{MODEL}, and a data set of pairs (image (3, H, W), int label), a DataLoader of one, or "
    "images (n, 3, H, W), all of the model's size and precision",
    "a list of batches, a model whose images do not have permutations of their own, and warns if "
    "fewer than 20 images are classified correctly",
    _judge_position_shap,
    _require_samples,
)
