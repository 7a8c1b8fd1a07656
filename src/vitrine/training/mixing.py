"""Mixup, CutMix, label smoothing and the loss that fits them.

Mixed labels are soft and already smoothed (timm's `Mixup` does both), so they take a soft-target
loss; where nothing is mixed, the labels stay indices and the loss smooths them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from timm.data import Mixup
from timm.loss import BinaryCrossEntropy, LabelSmoothingCrossEntropy, SoftTargetCrossEntropy
from torch import Tensor, nn

from vitrine.errors import VitrineError

if TYPE_CHECKING:
    from vitrine.plan.recipe import Recipe

Mixing = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def build_mixing(recipe: Recipe, classes: int) -> Mixing:
    """Return what turns a micro-batch (B, 3, H, W), (B,) into what is trained on.

    The mixed targets have shape (B, classes). One draw serves the whole micro-batch, whose images
    are mixed with the same micro-batch in reverse order.

    Raises:
        VitrineError: images are to be mixed in pairs but the micro-batch is odd.
    """
    spec = recipe.augmentation
    if not (spec.mixup or spec.cutmix):
        return lambda images, labels: (images, labels)
    if recipe.batch.micro % 2:
        raise VitrineError(
            f"batch.micro is {recipe.batch.micro}, but Mixup and CutMix pair images: make it even"
        )
    mixup: Mixing = Mixup(
        mixup_alpha=spec.mixup,
        cutmix_alpha=spec.cutmix,
        prob=spec.mix_prob,
        switch_prob=spec.mix_switch_prob,
        label_smoothing=recipe.label_smoothing,
        num_classes=classes,
    )
    return mixup


def build_loss(recipe: Recipe) -> nn.Module:
    """Return the loss for what `build_mixing` makes, averaged over the micro-batch."""
    smoothing = recipe.label_smoothing
    if recipe.loss == "binary_cross_entropy":
        # It smooths indices only, not mixed targets. With DeiT III's threshold of 0 both labels of
        # a mixed image count whole, whatever their shares.
        return BinaryCrossEntropy(smoothing, target_threshold=recipe.bce_target_threshold)
    if recipe.augmentation.mixup or recipe.augmentation.cutmix:
        return SoftTargetCrossEntropy()
    return LabelSmoothingCrossEntropy(smoothing) if smoothing else nn.CrossEntropyLoss()
