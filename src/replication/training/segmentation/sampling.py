"""Samples by counting: the image drawn at position n depends on the seed and n alone.

mmengine's samplers and MMSegmentation's transforms draw from generators that live as long as the
process. Here each draw seeds them again (`vitrail.seeding`), so nothing needs to be saved:
neither a resumed run, nor more workers or processes, draw anything else.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator, Mapping, Sized
from typing import Any

import numpy as np
from mmengine.dist import get_dist_info
from mmengine.registry import FUNCTIONS
from mmseg.registry import DATA_SAMPLERS, DATASETS
from torch.utils.data import Dataset, Sampler

from replication.images.masks import read_mask
from replication.training.distributed import SHIELDED
from vitrail.errors import VitrailError, first_line
from vitrail.image_files import read_image
from vitrail.measures.loading import prepare_worker
from vitrail.seeding import derive, seed_everything


@DATA_SAMPLERS.register_module()
class CountedSampler(Sampler[int]):
    """Yields the numbers of this process's draws, without end, instead of indices of images.

    Of each step, `batch_size` draws are this process's. mmengine hands over `seed`, unused.
    """

    def __init__(self, dataset: Sized, batch_size: int, seed: int | None = None) -> None:
        self.dataset, self.batch_size = dataset, batch_size
        self.rank, self.world = get_dist_info()
        self.start = 0

    def __iter__(self) -> Iterator[int]:
        for count in itertools.count(self.start):
            step, place = divmod(count, self.batch_size)
            yield (step * self.world + self.rank) * self.batch_size + place

    def __len__(self) -> int:
        return len(self.dataset) // self.world

    def skip(self, num_samples: int) -> None:
        """Start after so many draws of this process; mmengine calls it to resume."""
        self.start = num_samples


@DATASETS.register_module()
class CountedDataset(Dataset[Any]):
    """A dataset by draws: draw n is an image of epoch n // size, in the order of that epoch.

    The seed decides the order, and all randomness of the transforms of the configured dataset.
    """

    def __init__(self, dataset: Mapping[str, Any], seed: int) -> None:
        self.dataset = DATASETS.build(dataset)
        self.metainfo = self.dataset.metainfo
        self.seed = seed
        self._epoch, self._order = -1, np.empty(0, dtype=int)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, draw: int) -> Any:
        epoch, place = divmod(draw, len(self))
        if epoch != self._epoch:
            generator = np.random.default_rng(derive("order", self.seed, epoch))
            self._epoch, self._order = epoch, generator.permutation(len(self))
        seed_everything("sample", self.seed, draw)
        return read_sample(self.dataset, int(self._order[place]))


@FUNCTIONS.register_module()
def prepare_shielded_worker(worker_id: int, **told: Any) -> None:
    """Make a loader's worker ignore the signals that ask the training to stop and save."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SHIELDED)
    prepare_worker(worker_id)


def read_sample(dataset: Any, index: int) -> Any:
    """Return a sample as the pipeline makes it; raises VitrailError with the name of a bad file."""
    try:
        return dataset[index]
    except Exception as error:  # OpenCV and mmseg fail in many ways, none of which names the file
        told = dataset.get_data_info(index)
        image, mask = told["img_path"], told.get("seg_map_path")
        if "://" not in image:  # else it is no file
            read_image(image)
            if mask:
                read_mask(mask)
        raise VitrailError(
            f"image {image} with mask {mask} cannot be used ({type(error).__name__}: "
            f"{first_line(error)}): restore them, or correct the pipeline of the configuration"
        ) from error
