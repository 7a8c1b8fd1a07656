"""Run a model for a measure, and check its outputs.

All measures of a model take it in evaluation mode and compute where its parameters are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count, islice
from typing import Any

import torch
from torch import Tensor, nn

from vitrail.errors import VitrailError

Batches = Iterable[tuple[Tensor, Tensor]]
"""Batches of images ``(B, 3, H, W)`` with labels ``(B,)``, such as a `DataLoader` yields."""
UNKNOWN = -1
"""The label of an image whose class is not known."""


def device_of(model: nn.Module) -> torch.device:
    """Return the device of a model's first parameter or buffer, the CPU if it has none."""
    first = next(chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if first is None else first.device


def logits_of(model: nn.Module, images: Tensor) -> Tensor:
    """Run a classifier without gradients: images ``(B, 3, H, W)`` to logits ``(B, classes)``.

    The logits are float32, on the CPU.

    Raises:
        VitrailError: there are fewer than two classes, or a logit is NaN or infinite.
    """
    with torch.inference_mode():
        logits = model(images.to(device_of(model), non_blocking=True))
        return require_logits(logits.float().cpu())


def numbered(
    batches: Batches, model: nn.Module, indices: Iterable[int] | None = None
) -> Iterator[tuple[Sequence[int], Tensor, Tensor]]:
    """Yield the indices of a batch's images, the images on the model's device, and their labels.

    Random draws for an image depend on a seed and its index, so that neither the batch size nor the
    choice of other images changes them. Without `indices`, images are counted from 0.

    Raises:
        VitrailError: a batch is not a pair of images and labels, or there are fewer indices than
            images.
    """
    device = device_of(model)
    number = iter(count() if indices is None else indices)
    for batch in batches:
        images, labels = require_batch(batch)
        own = list(islice(number, len(images)))
        if len(own) < len(images):
            raise VitrailError("there are fewer indices than images: give one for each image")
        yield own, images.to(device, non_blocking=True), labels


def require_batch(batch: Any) -> tuple[Tensor, Tensor]:
    """Return the images ``(B, 3, H, W)`` and the labels ``(B,)`` of a batch.

    Raises:
        VitrailError: it consists of something else.
    """
    match batch:
        case (Tensor(ndim=4) as images, Tensor(ndim=1) as labels):
            return images, labels
    raise VitrailError(
        "the data must come in batches of images (B, 3, H, W) with labels (B,): give "
        "DataLoader(data, batch_size=128) of a data set of (image, label)"
    )


def unlabelled(images: Tensor, batch_size: int = 128) -> Batches:
    """Split images ``(n, 3, H, W)`` into batches, all with the label `UNKNOWN`."""
    return [(batch, torch.full((len(batch),), UNKNOWN)) for batch in images.split(batch_size)]


def without_tf32() -> None:
    """Disable TF32 on CUDA, whose convolutions by default round float32 to 10 bits of mantissa."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


NO_MEMORY = re.compile(
    "out[ _]of[ _](device[ _])?memory|not enough memory|can't allocate memory|invalid buffer size"
    "|alloc(ation)?_failed|valid cudnn algorithm|find an engine",
    re.IGNORECASE,
)
"""How torch's allocators (CUDA, XPU, MPS, the CPU's on Linux and Windows) and NVIDIA's libraries
(cuBLAS, cuDNN, cuFFT, which also find no algorithm then) say that memory does not suffice."""


def out_of_memory(error: Exception) -> bool:
    """Return whether an error means that memory does not suffice, on any device."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and NO_MEMORY.search(str(error)) is not None


def require_finite(outputs: Tensor, what: str) -> Tensor:
    """Return a model's outputs if all are finite; `what` names them in the error message.

    A comparison with NaN is false, and an arg max over NaN is the same for every image, so without
    this check such a model would count as consistent.

    Raises:
        VitrailError: an output is NaN or infinite.
    """
    if not outputs.isfinite().all():
        raise VitrailError(
            f"the model's {what} are not finite, so nothing can be measured of them: check its "
            "weights and the normalisation of the images"
        )
    return outputs


def require_classes(classes: int) -> None:
    """Raise VitrailError if a model has fewer than two classes, so that it predicts nothing.

    Raises:
        VitrailError: there are fewer than two.
    """
    if classes < 1:
        raise VitrailError("the model has no classes to predict: give a model with a classifier")
    if classes < 2:
        raise VitrailError(
            "the model has one logit, which is always the largest: give a model of two or more "
            "classes (instead of one logit z, a binary classifier can have the two logits 0 and z)"
        )


def require_logits(logits: Tensor) -> Tensor:
    """Return a classifier's logits ``(..., classes)``, whose largest is the class predicted.

    Raises:
        VitrailError: there are fewer than two classes, or a logit is NaN or infinite.
    """
    require_classes(logits.shape[-1])
    return require_finite(logits, "logits")
