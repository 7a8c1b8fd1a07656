"""How well a segmenter labels pixels: mIoU, mAcc and aAcc, as MMSegmentation defines them.

Predictions are resized to the image's original size, pixels of 255 are not judged, and areas are
summed over the whole split before they are divided: no image has an IoU of its own. Classes that
occur in neither masks nor predictions do not count.
"""

from __future__ import annotations

from typing import Any

import torch
from mmseg.evaluation.metrics import IoUMetric
from torch import Tensor

from vitrine.data.loading import evenly_spread
from vitrine.data.segmentation import IGNORED
from vitrine.errors import VitrineError
from vitrine.measures.context import Trained, Values
from vitrine.plan.recipe import SegmentationRecipe
from vitrine.segmentation.evaluation import Sample, ValidationSamples
from vitrine.segmentation.vit import TimmViT

CALIBRATIONS = {"baseline": "none", "iid": "iid", "empirical": "empirical"}


class Areas:
    """Areas of each class, summed over images: intersection, union, prediction and label."""

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.totals = torch.zeros(4, classes, dtype=torch.float64)

    def add(self, prediction: Tensor, mask: Tensor) -> None:
        """Count an image: classes ``(h, w)`` as predicted, and as labelled."""
        areas = IoUMetric.intersect_and_union(prediction, mask, self.classes, IGNORED)
        self.totals += torch.stack(areas).double()

    def values(self) -> dict[str, float]:
        """``mIoU``, ``mAcc`` and ``aAcc``, in percent."""
        metrics = IoUMetric.total_area_to_metrics(*self.totals)
        names = {"mIoU": "IoU", "mAcc": "Acc", "aAcc": "aAcc"}
        return {
            ours: (100 * torch.tensor(metrics[theirs]).nanmean()).item()
            for ours, theirs in names.items()
        }


def segmentation_accuracy(
    trained: Trained[SegmentationRecipe], images: int | None = None
) -> Values:
    """Judge the predictions on the validation split, or on `images` spread evenly over it.

    Returns:
        ``mIoU``, ``mAcc`` and ``aAcc`` (percent), ``images``.
    """
    samples = ValidationSamples(trained.recipe, trained.info, trained.data_root)
    chosen = evenly_spread(len(samples), images)
    areas = Areas(trained.info.classes)
    for sample in map(samples.__getitem__, chosen):
        areas.add(predict(trained, sample), sample.mask)
    return {**areas.values(), "images": len(chosen)}


def calibrated_accuracy(trained: Trained[SegmentationRecipe], images: int | None = None) -> Values:
    """Judge a Vision Transformer with its positions calibrated at test time (variance, Table 4).

    The weights, of a `TimmViT`, are the same each time. Whether one axis of the table grows or
    both, and so which of the paper's constants divides it, follows from each image's size. Judged
    are the validation split, or `images` spread evenly over it.

    Returns:
        ``"<metric>/<method>"`` (percent) for the metrics mIoU, mAcc and aAcc, and the methods
        baseline, UP(P), iid, UP(P) / sqrt(k), and empirical; ``"<metric>/<method>-baseline"``, the
        gain in points; ``images``.

    Raises:
        VitrineError: the backbone has no positions to calibrate.
    """
    backbone: Any = trained.model.backbone
    if not isinstance(backbone, TimmViT):
        raise VitrineError(
            f"configuration '{trained.recipe.model.name}' has a {type(backbone).__name__}, which "
            "adds no table of positions: calibrated_accuracy needs a TimmViT"
        )
    samples = ValidationSamples(trained.recipe, trained.info, trained.data_root)
    chosen = evenly_spread(len(samples), images)
    areas = {method: Areas(trained.info.classes) for method in CALIBRATIONS}
    for sample in map(samples.__getitem__, chosen):
        for method, calibration in CALIBRATIONS.items():
            backbone.model.calibration = calibration
            areas[method].add(predict(trained, sample), sample.mask)
    backbone.model.calibration = "none"
    values: dict[str, float] = {"images": len(chosen)}
    baseline = areas["baseline"].values()
    for method, own in areas.items():
        for metric, value in own.values().items():
            values[f"{metric}/{method}"] = value
            if method != "baseline":
                values[f"{metric}/{method}-baseline"] = value - baseline[metric]
    return values


def predict(trained: Trained[SegmentationRecipe], sample: Sample) -> Tensor:
    """Return the classes that the segmenter sees, ``(h, w)`` at the original size, on the CPU."""
    model: Any = trained.model
    with torch.inference_mode():
        (told,) = model.predict(sample.image[None].to(trained.device), [sample.told])
    classes: Tensor = told.pred_sem_seg.data[0].cpu()
    return classes
