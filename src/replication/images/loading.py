"""Batches whose content depends on (seed, step) only.

No generator's state is carried from step to step. The order of epoch e is a function of (seed, e),
and the transform of sample i draws from generators seeded by (seed, e, i), or with repeated
augmentation, for its view v, by (seed, e, i, v). So workers, devices, accumulation and resuming do
not change the images of a step, and a run can start at any step without repeating earlier draws.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import struct
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from replication.epoch_length import require_batches, steps_per_epoch
from vitrail.errors import VitrailError
from vitrail.measures.loading import prepare_worker

if TYPE_CHECKING:
    from replication.images.transforms import Transform

Key = tuple[int, ...]
"""The numbers on which a training sample's randomness depends: (epoch, index in the dataset), and
with repeated augmentation also the number of the image's view."""


@dataclass(frozen=True)
class MicroBatch:
    """The unit of training: `index` counts from 0 among all micro-batches of a step."""

    step: int
    index: int
    # (micro, 3, H, W) float32, fewer in an epoch's short last batch; a list of tensors if the
    # transform returns several
    images: Any
    labels: Tensor  # (micro,) int64


class Pictures(Dataset[tuple[Image.Image, int]]):
    """Images (N, H, W, 3) uint8 in one array, with their labels (N,) int."""

    def __init__(self, images: np.ndarray, labels: Sequence[int] | np.ndarray):
        self.images, self.labels = images, np.asarray(labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return Image.fromarray(self.images[index]), int(self.labels[index])


class TrainingSamples(Dataset[tuple[Tensor, int]]):
    """A dataset under a random transform, indexed by `Key`.

    With `repeats` > 1 an epoch has that many views of each image that it uses, all in one batch,
    and so it uses only 1 / `repeats` of the images: the repeated augmentation of Hoffer et al.
    (2020) as DeiT samples it.

    The global generators of Python, NumPy and torch are seeded for each sample. Their states are
    restored afterwards, once for all samples that are fetched together, because saving NumPy's
    state takes longer than transforming a small image.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        transform: Transform,
        seed: int,
        repeats: int = 1,
    ) -> None:
        self.dataset, self.transform, self.seed = dataset, transform, seed
        self.repeats = repeats

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]  # torch's Dataset declares no length

    def __getitem__(self, key: Key) -> tuple[Tensor, int]:
        return self.__getitems__([key])[0]

    def __getitems__(self, keys: Sequence[Key]) -> list[tuple[Tensor, int]]:
        """Fetch several samples; `DataLoader` prefers this to one call for each."""
        with preserved_generators():
            return [self._sample(key) for key in keys]

    def _sample(self, key: Key) -> tuple[Tensor, int]:
        seed_for(self.seed, *key)  # first, as a dataset may draw too
        image, label = self.dataset[key[1]]
        return self.transform(image), label


class Relabelled(Dataset[tuple[Any, int]]):
    """A dataset whose labels are permuted among its images by a seed, as a control.

    A model cannot learn from it anything that holds for other images.
    """

    def __init__(self, dataset: Dataset[Any], seed: int):
        self.dataset = dataset
        count: int = len(dataset)  # type: ignore[arg-type]  # torch's Dataset declares no length
        entropy = np.frombuffer(_digest(b"labels", seed), dtype="<u4")
        self.source = np.random.RandomState(entropy).permutation(count)

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.dataset[index][0], self.dataset[int(self.source[index])][1]


class EvaluationSamples(Dataset[tuple[Tensor, int]]):
    """A dataset under a deterministic transform."""

    def __init__(self, dataset: Dataset[Any], transform: Transform):
        self.dataset, self.transform = dataset, transform

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]  # torch's Dataset declares no length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image, label = self.dataset[index]
        return self.transform(image), label


def epoch_order(samples: int, seed: int, epoch: int) -> np.ndarray:
    """Return the order of one epoch: a permutation of range(samples) drawn from (seed, epoch)."""
    entropy = np.frombuffer(_digest(b"order", seed, epoch), dtype="<u4")
    # NumPy guarantees that RandomState's stream never changes (NEP 19), so old runs can be resumed.
    return np.random.RandomState(entropy).permutation(samples)


def micro_batches(
    samples: TrainingSamples,
    *,
    size: int,
    micro: int,
    start: int,
    stop: int,
    rank: int = 0,
    world: int = 1,
    workers: int = 0,
    pin_memory: bool = False,
    drop_last: bool = True,
) -> Generator[MicroBatch, None, None]:
    """Yield this rank's micro-batches of the steps from `start` up to (not with) `stop`.

    A step is one global batch of `size` images in size / micro micro-batches; rank r of `world`
    takes those numbered r, r + world, ... The micro-batches do not depend on the number of
    processes; the samples' seed decides the order of images. Views of one image go to different
    micro-batches as far as possible. `workers` processes transform the images (0: this process);
    closing the generator ends them. `pin_memory` puts the batches into page-locked memory, from
    which a GPU copies faster. Without `drop_last`, the micro-batches of a short last batch share
    its images as equally as possible.

    Raises:
        VitrailError: the dataset is smaller than a batch, or the micro-batches of a step cannot
            be shared equally among the processes.
    """
    require_batches(len(samples), size, micro, drop_last)
    per_epoch = steps_per_epoch(len(samples), size, drop_last)
    per_step, repeats = size // micro, samples.repeats
    if per_step % world:
        raise VitrailError(
            f"{world} processes cannot share the {per_step} micro-batches of a step equally; "
            f"use a number of processes that divides {per_step}"
        )

    def places() -> Iterator[tuple[int, int]]:
        return itertools.product(range(start, stop), range(rank, per_step, world))

    def keys() -> Iterator[list[Key]]:
        current, order = -1, np.empty(0, dtype=np.int64)
        for step, index in places():
            epoch, position = divmod(step, per_epoch)
            if epoch != current:
                current, order = epoch, epoch_order(len(samples), samples.seed, epoch)
            batch = order[position * size : (position + 1) * size]
            if repeats == 1:
                first, last = (len(batch) * m // per_step for m in (index, index + 1))
                yield [(epoch, int(i)) for i in batch[first:last]]
            else:
                chosen = range(position * size + index, position * size + len(batch), per_step)
                yield [(epoch, int(order[i // repeats]), i % repeats) for i in chosen]

    loader = DataLoader(
        samples,
        batch_sampler=keys(),
        num_workers=workers,
        pin_memory=pin_memory,
        generator=torch.Generator(),  # otherwise DataLoader draws from the global generator
        worker_init_fn=prepare_worker,
    )
    return (
        MicroBatch(step, index, images, labels)
        for (step, index), (images, labels) in zip(places(), loader, strict=True)
    )


def _digest(purpose: bytes, *counters: int) -> bytes:
    """Hash counters to 16 bytes; `purpose` gives each use a stream of its own."""
    packed = struct.pack(f"<{len(counters)}Q", *counters)
    return hashlib.blake2b(packed, digest_size=16, person=purpose).digest()


@contextmanager
def preserved_generators() -> Iterator[None]:
    """Restore the states of Python's, NumPy's and torch's global generators after the block."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


def seed_for(*counters: int) -> None:
    """Seed the global generators for one sample by a seed and the numbers of a `Key`."""
    for_python, for_numpy, for_torch = struct.unpack("<IIQ", _digest(b"sample", *counters))
    random.seed(for_python)
    np.random.seed(for_numpy)
    # Not torch.manual_seed: it would also seed every accelerator, at a hundred times the cost.
    torch.default_generator.manual_seed(for_torch)
