"""Position-SHAP of a model in one call, by either estimator (position, Sec. 3).

result = position_shap(model, loader)
result.mean, result.interval  # the share of a prediction that is due to position, and its 95 %
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from vitrail.errors import VitrailError, require_known
from vitrail.measures.outputs import UNKNOWN
from vitrail.measures.position_shap.half_batches import position_shap_half_batches
from vitrail.measures.position_shap.shapley import PositionShap
from vitrail.measures.position_shap.sweep import position_shap_sweep

Estimator = Literal["sweep", "half-batches"]
Data = Dataset[Any] | DataLoader[Any] | Tensor


def position_shap(
    model: nn.Module,
    data: Data,
    *,
    estimator: Estimator = "sweep",
    permutations: int | None = None,
    max_half_width: float | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    resume: Path | None = None,
    data_digest: str = "",
) -> PositionShap:
    """Measure how much a classifier's predictions depend on the positions of patches (P-SHAP).

    Source: position, Sec. 3; the estimator "half-batches" is the authors' protocol (App. E).

    Args:
        model: a Vision Transformer of timm's or of this library in evaluation mode, or any model
            that `vitrail.measures.permutable.permutable` has wrapped.
        data: a data set of (image ``(3, H, W)``, int label), a `DataLoader` of one, or images
            ``(n, 3, H, W)`` without labels. An image with the label `UNKNOWN` (-1), or without
            labels, is explained by the class that the model predicts. Of a `DataLoader` the same
            images are measured in the order of its data set, whether it shuffles them or not.
        estimator: "sweep" takes all other images as the background of each, in 1 + K forward passes
            per image, and gives an interval; "half-batches" takes half a batch as the background of
            the other half, in about 3 + `batch_size` / 2 passes per image, and gives none.
        permutations: K, for each image; 1 or an even number. None: 4, or 2 for more than 5,000
            images. For the estimator "sweep" only, as `max_half_width`.
        max_half_width: stop as soon as the interval's half width is at most this. The images are
            then taken in an order drawn from the seed.
        batch_size: images at a time. None: the `DataLoader`'s, else 128; by half-batches 32, since
            there it decides how large the background is.
        seed: of all random draws.
        workers: processes that load the images of a sweep; 0 loads them here. None: the
            `DataLoader`'s, else 0.
        resume: a file from which a later sweep resumes; it is deleted at the end.
        data_digest: digest of images and labels; a file to resume with another digest is refused.

    Returns:
        with ``mean``, the model's P-SHAP from 0 to 1 over the images that it classifies correctly
        (by a sweep corrected for few permutations, which is ours), its 95 % ``interval``, and
        ``values``, P-SHAP of each image.

    Raises:
        VitrailError: there is no such estimator, or it has no such option; single images of the
            data cannot be read; the model's positions cannot be permuted; or as
            `position_shap_sweep` and `position_shap_half_batches`.
    """
    require_known("estimator", estimator, get_args(Estimator))
    samples = samples_of(data)
    if estimator == "half-batches":
        of_sweep = {"permutations": permutations, "max_half_width": max_half_width}
        for name, value in (of_sweep | {"resume": resume}).items():
            if value is not None:
                raise VitrailError(
                    f"{name} is {value}, which the estimator 'half-batches' does not take: leave "
                    f"{name} out, or use the estimator 'sweep'"
                )
        return position_shap_half_batches(
            model, samples, batch_size=32 if batch_size is None else batch_size, seed=seed
        )
    if isinstance(data, DataLoader):
        batch_size = data.batch_size if batch_size is None else batch_size
        workers = data.num_workers if workers is None else workers
    return position_shap_sweep(
        model,
        samples,
        permutations=permutations,
        max_half_width=max_half_width,
        batch_size=128 if batch_size is None else batch_size,
        seed=seed,
        workers=workers or 0,
        resume=resume,
        data_digest=data_digest,
    )


class LoadedSamples(Dataset[tuple[Tensor, Tensor]]):
    """The images and labels that a `DataLoader` yields, one by one, in its data set's order."""

    def __init__(self, loader: DataLoader[Any]):
        self.samples, self.collate = loader.dataset, loader.collate_fn
        batches: Any = loader.batch_sampler
        self.indices = sorted(index for batch in batches for index in batch)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        images, labels = self.collate([self.samples[self.indices[number]]])
        return images[0], labels[0]


def samples_of(data: Data) -> Dataset[Any]:
    """Return data as a sized data set of (image, label).

    Raises:
        VitrailError: single images of it cannot be read.
    """
    if isinstance(data, Tensor):
        return TensorDataset(data, torch.full((len(data),), UNKNOWN))
    source: Any = data.dataset if isinstance(data, DataLoader) else data
    sized = hasattr(source, "__len__") and hasattr(source, "__getitem__")
    batched = not isinstance(data, DataLoader) or data.batch_sampler is not None
    array = hasattr(source, "shape") and not isinstance(source, Dataset)  # its rows are no pairs
    if isinstance(source, IterableDataset) or not sized or not batched or array:
        raise VitrailError(
            f"single images of the data, a {type(data).__name__}, cannot be read: give a data set "
            "of (image, label) with a length, a torch DataLoader of one with a batch_size (timm's "
            "create_loader makes one with use_prefetcher=False), or images (n, 3, H, W) as a tensor"
        )
    return LoadedSamples(data) if isinstance(data, DataLoader) else data
