"""Measure how well a segmenter labels pixels: mIoU, mAcc and aAcc, as MMSegmentation defines them.

Predictions are resized to the image's original size, and pixels with the label 255 are ignored.
Areas are summed over the whole split before they are divided: there is no IoU of a single image.
Classes that occur in neither masks nor predictions are left out of the means.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from mmengine.registry import DefaultScope
from mmseg.evaluation.metrics import IoUMetric
from mmseg.registry import DATASETS, MODELS
from mmseg.structures import SegDataSample
from torch import Tensor

from replication.config.recipes.segmentation import SegmentationRecipe
from replication.context import Described, Trained, Values, passes
from replication.datasets.verify import check_layout
from replication.images.masks import IGNORED
from replication.training.segmentation.config import SCOPE, Fit, refit, test_config
from replication.training.segmentation.sampling import read_sample
from vitrail.errors import VitrailError
from vitrail.measures.loading import evenly_spread
from vitrail.segmentation.vit import TimmViT


@dataclass(frozen=True)
class Sample:
    """One image with its mask."""

    image: Tensor  # (3, H, W) float, resized and normalised as the test pipeline says
    mask: Tensor  # (h, w) long, at the original size; 255 is ignored
    name: str  # the file's, without its suffix
    told: SegDataSample  # MMSegmentation's data of the image, which its `predict` needs


class ValidationSamples:
    """The validation split under the recipe's test pipeline, in the order of file names.

    `fit` overrides how images are brought to a multiple of the pipeline's divisor (`refit`).
    Raises VitrailError if the dataset is not there, or the configuration cannot be used.
    """

    def __init__(self, of: Described[SegmentationRecipe], fit: Fit | None = None) -> None:
        check_layout(of.info, of.data_root)
        config = test_config(of.recipe, of.info, of.data_root, of.seed)
        if fit is not None:
            refit(config, fit)
        with DefaultScope.overwrite_default_scope(SCOPE):
            self._images: Any = DATASETS.build(config.test_dataloader.dataset)
            self._preprocessor: Any = MODELS.build(config.model.data_preprocessor)

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> Sample:
        item = read_sample(self._images, index)
        batch = {"inputs": [item["inputs"]], "data_samples": [item["data_samples"]]}
        batch = self._preprocessor(batch, training=False)
        (told,) = batch["data_samples"]  # a copy of the item's, with the size of the padding
        mask = told.gt_sem_seg.data[0].long()
        return Sample(batch["inputs"][0], mask, Path(told.img_path).stem, told)


class Areas:
    """Areas of each class in pixels, summed over images: intersection, union, prediction, label."""

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.totals = torch.zeros(4, classes, dtype=torch.float64)

    def add(self, prediction: Tensor, mask: Tensor) -> None:
        """Add the areas of one image: predicted classes ``(h, w)`` and labels ``(h, w)``."""
        areas = IoUMetric.intersect_and_union(prediction, mask, self.classes, IGNORED)
        self.totals += torch.stack(areas).double()

    def values(self) -> dict[str, float]:
        """Return ``mIoU``, ``mAcc`` and ``aAcc``, in percent."""
        metrics = IoUMetric.total_area_to_metrics(*self.totals)
        means = {name: torch.tensor(value).nanmean() for name, value in metrics.items()}
        names = {"mIoU": "IoU", "mAcc": "Acc", "aAcc": "aAcc"}
        return {ours: (100 * means[theirs]).item() for ours, theirs in names.items()}


@passes(1)
def segmentation_accuracy(
    trained: Trained[SegmentationRecipe], images: int | None = None, fit: Fit | None = None
) -> Values:
    """Measure the predictions on the validation split, or on `images` spread evenly over it.

    Images are brought to a multiple of the divisor as the recipe says, or by `fit`: ``pad`` or
    ``resize``.

    Returns:
        ``mIoU``, ``mAcc`` and ``aAcc`` (percent), ``images``.
    """
    samples = ValidationSamples(trained, fit)
    chosen = evenly_spread(len(samples), images)
    return {**judge(trained, samples, chosen).values(), "images": len(chosen)}


def judge(
    trained: Trained[SegmentationRecipe], samples: ValidationSamples, chosen: Iterable[int]
) -> Areas:
    """Return the areas of the predictions and masks of the samples with the `chosen` indices."""
    areas = Areas(trained.info.classes)
    for sample in map(samples.__getitem__, chosen):
        areas.add(predict(trained, sample), sample.mask)
    return areas


METHODS: dict[str, dict[str, Any]] = {
    "baseline": {},
    "iid": {"calibration": "constant"},
    "empirical": {"calibration": "empirical"},
    "zero": {"scale": 0.0},
}


@passes(4)
def calibrated_accuracy(trained: Trained[SegmentationRecipe], images: int | None = None) -> Values:
    """Measure a Vision Transformer with its positions calibrated at test time (variance, Table 4).

    The paper's constant by which the table of positions is divided depends on the image's size: on
    whether one of its axes is longer than in training, or both. Images are those of the validation
    split, or `images` spread evenly over it. Raises VitrailError if the backbone is not a
    `TimmViT`.

    Returns:
        ``"<metric>/<method>"`` (percent) for the metrics mIoU, mAcc and aAcc and these methods:
        baseline, UP(P); iid, UP(P) / sqrt(k); empirical; zero, without the positions of patches.
        ``"<metric>/<method>-baseline"``, the gain in percentage points; ``images``.
    """
    backbone: Any = trained.model.backbone
    if not isinstance(backbone, TimmViT):
        raise VitrailError(
            f"configuration '{trained.recipe.model.name}' has a {type(backbone).__name__}, which "
            "adds no table of positions: calibrated_accuracy needs a TimmViT"
        )
    samples = ValidationSamples(trained)
    chosen = evenly_spread(len(samples), images)
    areas = {method: Areas(trained.info.classes) for method in METHODS}
    for sample in map(samples.__getitem__, chosen):
        for method, options in METHODS.items():
            backbone.model.rescaling = options
            areas[method].add(predict(trained, sample), sample.mask)
    backbone.model.rescaling = {}
    reached = {method: own.values() for method, own in areas.items()}
    values: dict[str, float] = {"images": len(chosen)}
    for method, own in reached.items():
        for metric, value in own.items():
            values[f"{metric}/{method}"] = value
            if method != "baseline":
                values[f"{metric}/{method}-baseline"] = value - reached["baseline"][metric]
    return values


def predict(trained: Trained[SegmentationRecipe], sample: Sample) -> Tensor:
    """Return the predicted classes, ``(h, w)`` at the image's original size, on the CPU."""
    model: Any = trained.model
    # Not inference mode, as a training may continue with the model afterwards.
    with torch.no_grad():
        (told,) = model.predict(sample.image[None].to(trained.device), [sample.told])
    classes: Tensor = told.pred_sem_seg.data[0].cpu()
    return classes
