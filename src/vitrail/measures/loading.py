"""Load images for measures, in the order of the dataset, under an evaluation transform."""

from __future__ import annotations

import math
import os
import signal
import threading
import traceback
from multiprocessing.queues import Queue
from typing import Any

import torch
from timm.data import create_transform
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import Compose

from vitrail.errors import VitrailError


def evaluation_view(
    image_size: int,
    *,
    interpolation: str,
    crop_pct: float,
    crop_mode: str,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    margin: int = 0,
) -> Compose:
    """Return timm's evaluation view: PIL image -> float ``(3, image_size, image_size)``.

    It resizes the short side to image_size / crop_pct and crops the centre. timm rounds the resized
    side down: 256 / 0.8767 is 292 pixels. With the `crop_mode` ``squash``, both sides are resized
    to that length; with ``border``, the long side is, and the rest is padded with the mean. The
    crop is larger by `margin` pixels on each axis, half of them on either side.

    Raises:
        VitrailError: `image_size` is below one pixel, or `margin` leaves the resized image.
    """
    if image_size < 1:
        raise VitrailError(f"image_size is {image_size}; it must be at least 1 pixel")
    resize, crop, *steps = create_transform(
        input_size=image_size,
        is_training=False,
        interpolation=interpolation,
        crop_pct=crop_pct,
        crop_mode=crop_mode,
        mean=mean,
        std=std,
    ).transforms
    if margin:
        side = resize.size if isinstance(resize.size, int) else min(resize.size)  # squashed: both
        if image_size + margin > side:
            most = math.floor(1000 * image_size / (image_size + margin)) / 1000
            raise VitrailError(
                f"crop_pct is {crop_pct:g}, which resizes images to {side} pixels, and "
                f"{image_size} pixels with a margin of {margin} do not fit into these; use a "
                f"crop_pct of at most {most:g}"
            )
        crop.size = (image_size + margin, image_size + margin)
    return Compose([resize, crop, *steps])


def evenly_spread(total: int, count: int | None) -> list[int]:
    """Return `count` indices spread evenly over ``range(total)``, the first of them 0.

    Return all of them if `count` is None or larger than `total`.
    """
    count = total if count is None else min(count, total)
    return [index * total // count for index in range(count)]


def eval_loader(
    samples: Dataset[tuple[Tensor, int]],
    batch_size: int,
    workers: int = 0,
    device: str | torch.device = "cpu",
) -> DataLoader[tuple[Tensor, int]]:
    """Return a loader of images (B, 3, H, W) and labels (B,), in the dataset's order.

    The last batch may be smaller. Batches are on the CPU; for CUDA in pinned memory, from which
    ``images.to(device, non_blocking=True)`` copies them while the GPU computes.
    """
    return DataLoader(
        samples,
        batch_size=batch_size,
        num_workers=workers,
        pin_memory=torch.device(device).type == "cuda",
        generator=torch.Generator(),
        worker_init_fn=prepare_worker,
    )


def prepare_worker(worker: int) -> None:
    """Make a worker end when its parent asks for it, or when it cannot pass on a batch.

    Torch and multiprocessing end a worker by SIGTERM and wait for its end. A training blocks
    SIGTERM in its workers, since a cluster sends it to all processes. In that case a thread of the
    worker waits for a SIGTERM from the parent, and then ends the worker.

    A batch is put into shared memory in a thread of the worker. An error there, as when
    the shared memory is full, would only be printed (pytorch/pytorch#5040).

    Args:
        worker: number of the worker, as for every ``worker_init_fn`` of torch.
    """
    Queue._on_queue_feeder_error = staticmethod(_end)  # type: ignore[attr-defined]
    if signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, ()):
        threading.Thread(target=_heed, args=(os.getppid(),), daemon=True).start()


def _end(error: Exception, batch: Any) -> None:
    """Print an error and end this process, which its parent notices."""
    traceback.print_exception(error)
    os._exit(1)


def _heed(parent: int) -> None:
    """Wait for a SIGTERM of the parent, and end this process."""
    while signal.sigwaitinfo([signal.SIGTERM]).si_pid != parent:
        pass
    os._exit(0)
