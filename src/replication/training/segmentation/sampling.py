"""Draw samples by number: the image and the transform of draw n depend on the seed and n only.

mmengine's samplers and MMSegmentation's transforms draw from generators whose state lasts as long
as the process. Here the generators are seeded for each draw (`vitrail.seeding`), so no state needs
to be saved: a resumed run, or one with more workers or processes, draws the same samples.
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
    """Yield the numbers of this process's draws, without end, instead of indices of images.

    This process makes `batch_size` draws of each step. mmengine passes `seed`, which is not used.
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
        """Skip the first `num_samples` draws of this process; mmengine calls it to resume."""
        self.start = num_samples


@DATASETS.register_module()
class CountedDataset(Dataset[Any]):
    """A dataset indexed by draws: draw n is image n % size, in the random order of epoch n // size.

    `size` is the number of images. The seed decides the order of each epoch and all randomness in
    the transforms of the configured dataset.
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
    """Return sample `index` of an mmseg dataset; VitrailError names a file that cannot be read."""
    try:
        return dataset[index]
    except Exception as error:  # OpenCV and mmseg fail in many ways, none of which names the file
        told = dataset.get_data_info(index)
        image, mask = told["img_path"], told.get("seg_map_path")
        if "://" not in image:  # otherwise it is not a file
            read_image(image)
            if mask:
                read_mask(mask)
        raise VitrailError(
            f"image {image} with mask {mask} cannot be used ({type(error).__name__}: "
            f"{first_line(error)}): restore them, or correct the pipeline of the configuration"
        ) from error
