"""The measures of a model as `vitrail` exports them: model and data are checked first.

Each function has the arguments and the result of the measure that it calls. The replication calls
the measures themselves, because its own loaders make their data.
"""

# decides no number: it only raises and warns

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from vitrail.errors import VitrailError
from vitrail.measures import consistency
from vitrail.measures.outputs import UNKNOWN, Batches, device_of, require_batch, require_classes
from vitrail.measures.position_shap import measure
from vitrail.measures.position_shap.shapley import PositionShap
from vitrail.octic import turns

Given = ParamSpec("Given")
Result = TypeVar("Result")

FEWEST = 20
"""Images that P-SHAP must be a mean over to have an interval. The interval is that of a normal
distribution; with fewer images, Student's is over 7 % wider."""


def _checked(
    run: Callable[Given, Result],
    check: Callable[[dict[str, Any]], None],
    judge: Callable[[Result], None] = lambda result: None,
) -> Callable[Given, Result]:
    """Return a measure that first checks its arguments, and then judges its result.

    `check` takes the arguments by name, and may replace them; it raises a `VitrailError`. `judge`
    warns of a result that cannot be trusted.
    """

    @wraps(run)
    def call(*args: Given.args, **options: Given.kwargs) -> Result:
        given = signature(run).bind(*args, **options)
        require_model(given.arguments["model"])
        check(given.arguments)
        result = run(*given.args, **given.kwargs)
        judge(result)
        return result

    call.__module__ = __name__
    return call


def require_model(model: Any) -> None:
    """Raise a VitrailError unless `model` is a module in evaluation mode."""
    if not isinstance(model, nn.Module):
        raise VitrailError(
            f"the model is a {type(model).__name__}: give a torch.nn.Module, such as "
            "timm.create_model('vit_tiny_patch16_224')"
        )
    if any(module.training for module in model.modules()):
        raise VitrailError(
            "the model is in training mode, where dropout changes its logits: call model.eval()"
        )


def classes_of(model: nn.Module, images: Tensor) -> int:
    """Return the number of a model's classes, from its logits for the first of `images`.

    Raises:
        VitrailError: it does not return logits ``(B, classes)``, or there are fewer than two
            classes.
    """
    with torch.inference_mode():
        logits: Any = model(images[:1].to(device_of(model)))
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != 1:
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise VitrailError(
            f"for one image the model returns {found} instead of logits (1, classes): wrap it in a "
            "module whose forward returns the logits"
        )
    require_classes(logits.shape[1])
    return logits.shape[1]


def require_images(images: Tensor, model: nn.Module) -> None:
    """Raise a VitrailError unless a batch has at least one image, in the precision of the model."""
    if images.ndim != 4 or not len(images):
        raise VitrailError(
            f"the images have shape {tuple(images.shape)}: give at least one, as (B, 3, H, W)"
        )
    weights = next(model.parameters(), None)
    if weights is not None and weights.is_floating_point() and weights.dtype != images.dtype:
        raise VitrailError(
            f"the images are {_name(images)} and the model's weights {_name(weights)}: convert the "
            "images, and normalise them as in the model's training (timm.data.create_transform)"
        )


def require_labels(labels: Tensor, lowest: int, classes: int) -> None:
    """Raise a VitrailError unless each label is a whole number from `lowest` to `classes` - 1."""
    may = f"{UNKNOWN} (not known) or " if lowest == UNKNOWN else ""
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise VitrailError(
            f"the labels are {_name(labels)}: give whole numbers, {may}0 to {classes - 1}"
        )
    wrong = labels[(labels < lowest) | (labels >= classes)]
    if len(wrong):
        raise VitrailError(
            f"a label is {wrong[0].item()}, but the model has {classes} classes: give labels of "
            f"its own classes, {may}0 to {classes - 1}"
        )


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _checked_batches(
    batches: Batches, model: nn.Module, lowest: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of square images with labels from `lowest`, each checked when it is read."""
    classes = None
    for batch in batches:
        images, labels = require_batch(batch)
        require_images(images, model)
        _require_square(images)
        if len(labels) != len(images):
            raise VitrailError(
                f"a batch has {len(images)} images and {len(labels)} labels: give one label for "
                "each image"
            )
        classes = classes_of(model, images) if classes is None else classes
        require_labels(labels, lowest, classes)
        yield images, labels
    if classes is None:
        raise VitrailError("the data has no batches: give at least one image")


def _require_square(images: Tensor) -> None:
    if images.shape[-1] != images.shape[-2]:
        raise VitrailError(
            f"the images have {images.shape[-2]} x {images.shape[-1]} pixels: crop or resize them "
            "to squares"
        )


def _check_consistency(given: dict[str, Any]) -> None:
    model, images = given["model"], given["images"]
    if given.get("pairs", 1) < 1:
        raise VitrailError(f"pairs is {given['pairs']}; give at least 1")
    if not isinstance(images, Tensor):
        given["images"] = _checked_batches(images, model, UNKNOWN)
        return
    require_images(images, model)
    _require_square(images)
    classes_of(model, images)


def _check_turns(given: dict[str, Any]) -> None:
    if isinstance(given["batches"], Tensor):
        raise VitrailError(
            "images without labels have no accuracy: give batches of images (B, 3, S, S) with "
            "labels (B,), such as DataLoader(data, batch_size=128)"
        )
    given["batches"] = _checked_batches(given["batches"], given["model"], 0)


def _check_position_shap(given: dict[str, Any]) -> None:
    """Check the first sample; `position_shap` itself checks every label against the classes."""
    samples: Any = measure.samples_of(given["data"])
    if not len(samples):
        raise VitrailError("the data has no images: give at least two")
    match samples[0]:
        case (Tensor(ndim=3) as image, label) if _is_label(label):
            require_images(image[None], given["model"])
            classes_of(given["model"], image[None])
        case (Tensor(ndim=4), _):
            raise VitrailError(
                "the data are batches, and P-SHAP takes single images: give the data set of "
                "(image, label), or DataLoader(dataset, batch_size=...) of it"
            )
        case found:
            parts = found if isinstance(found, tuple | list) else [found]
            raise VitrailError(
                f"the first sample of the data is {', '.join(map(_describe, parts))} instead of an "
                "image tensor (3, H, W) and a label that is an int: give a data set of such pairs, "
                "or images (n, 3, H, W) without labels as one tensor"
            )


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


def _is_label(label: Any) -> bool:
    """Return whether a sample's label is a whole number, in Python or as a tensor."""
    if isinstance(label, Tensor):
        return label.ndim == 0 and not label.is_floating_point()
    return hasattr(label, "__index__")


def _describe(part: Any) -> str:
    """Say what a part of a sample is, for a message."""
    if isinstance(part, Tensor):
        return f"a tensor {tuple(part.shape)} of {_name(part)}"
    return f"a {type(part).__name__}"


circular_consistency = _checked(consistency.circular_consistency, _check_consistency)
accuracy_under_turns = _checked(turns.accuracy_under_turns, _check_turns)
position_shap = _checked(measure.position_shap, _check_position_shap, _judge_position_shap)
