"""One optimiser step, and the state that it changes.

A step is one global batch, divided into n micro-batches. For each micro-batch the random
generators are seeded anew; its images are mixed, a forward and a backward pass follow, and its
gradient is added with weight 1 / n. So one process that accumulates gradients and several that
share the micro-batches compute the same step, up to the order of that sum. (Batch-norm statistics
are those of each micro-batch; with several processes their running averages are those of rank 0.)

Mixed labels are soft and already smoothed (timm's `Mixup` does both), so they need a soft-target
loss. Without mixing, labels stay indices and the loss smooths them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from timm.data import Mixup
from timm.loss import BinaryCrossEntropy, LabelSmoothingCrossEntropy, SoftTargetCrossEntropy
from timm.utils import ModelEmaV3
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from replication.training.model_factory import autocast
from replication.training.optimizer import build_optimizer, build_scheduler
from vitrail.errors import VitrailError
from vitrail.seeding import seed_everything

if TYPE_CHECKING:
    from replication.config.recipe import EpochTraining
    from replication.config.recipes.classification import ClassificationRecipe
    from replication.images.loading import MicroBatch
    from replication.training.distributed import Team


Mixing = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class Pairs(Mixup):
    """timm's Mixup, which mixes pairs; of an odd number of images the last is dropped.

    The number is odd only in an epoch's short last batch.
    """

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Mix images ``(B, 3, H, W)`` and labels ``(B,)``."""
        even = len(images) // 2 * 2
        mixed: tuple[Tensor, Tensor] = super().__call__(images[:even], labels[:even])
        return mixed


def build_mixing(recipe: ClassificationRecipe, classes: int) -> Mixing:
    """Return the function from a micro-batch's images and labels to those that are trained on.

    It takes (B, 3, H, W) and (B,). Without Mixup and CutMix it returns them unchanged; otherwise
    the targets are (B, classes), soft and smoothed. A micro-batch is mixed with itself in reverse
    order, by one random coefficient. Raises VitrailError if the recipe mixes and its micro-batches
    have an odd size.
    """
    spec = recipe.augmentation
    if not (spec.mixup or spec.cutmix):
        return lambda images, labels: (images, labels)
    if recipe.batch.micro % 2:
        raise VitrailError(
            f"batch.micro is {recipe.batch.micro}, but Mixup and CutMix pair images: make it even"
        )
    return Pairs(
        mixup_alpha=spec.mixup,
        cutmix_alpha=spec.cutmix,
        prob=spec.mix_prob,
        switch_prob=spec.mix_switch_prob,
        label_smoothing=recipe.label_smoothing,
        num_classes=classes,
    )


def build_loss(recipe: ClassificationRecipe) -> nn.Module:
    """Return the loss for the targets of `build_mixing`, averaged over the micro-batch."""
    smoothing = recipe.label_smoothing
    if recipe.loss == "binary_cross_entropy":
        # timm's loss smooths indices, not mixed targets. With DeiT III's threshold of 0, both
        # labels of a mixed image get the target 1, whatever their shares.
        return BinaryCrossEntropy(smoothing, target_threshold=recipe.bce_target_threshold)
    if recipe.augmentation.mixup or recipe.augmentation.cutmix:
        return SoftTargetCrossEntropy()
    return LabelSmoothingCrossEntropy(smoothing) if smoothing else nn.CrossEntropyLoss()


class EpochTrainer(ABC):
    """Model, optimiser, schedule and loss scaler; `step` takes one optimiser step with them.

    `module` is what is trained, and `_loss` runs it on a micro-batch. `model` is the model that is
    saved: `module` itself or a part of it. The names in its state dict do not depend on what
    wraps it.
    """

    def __init__(
        self,
        module: nn.Module,
        model: nn.Module,
        recipe: EpochTraining,
        seed: int,
        steps_per_epoch: int,
        team: Team,
    ) -> None:
        self.seed, self.device = seed, team.device
        self.accumulation = recipe.batch.share(team.world)
        self.clip_grad, self.precision = recipe.optimizer.clip_grad, recipe.precision
        if recipe.precision == "fp16" and self.device.type != "cuda":
            raise VitrailError(
                "precision 'fp16' needs a CUDA device: train with bf16 or fp32 on this one"
            )
        self.module, self.model = module.to(self.device).train(), model
        self.optimizer = build_optimizer(self.module, recipe)
        self.scheduler = build_scheduler(self.optimizer, recipe, steps_per_epoch)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=recipe.precision == "fp16")
        self.parameters = list(self.module.parameters())
        self.parallel = DistributedDataParallel(self.module) if team.world > 1 else self.module

    @abstractmethod
    def _loss(self, batch: MicroBatch) -> Tensor:
        """Return the mean loss of a micro-batch; the forward pass must go through `parallel`."""

    def step(self, step: int, batches: Iterable[MicroBatch]) -> Tensor:
        """Take optimiser step `step` on this process's micro-batches; return their mean loss.

        The loss is a scalar tensor on the device, so the call does not wait for the GPU.
        """
        self.scheduler.step_update(step)
        self.optimizer.zero_grad()
        total = torch.zeros((), device=self.device)
        for position, batch in enumerate(batches, start=1):
            seed_everything("micro-batch", self.seed, step, batch.index)
            with synchronised(self.parallel, position == self.accumulation):
                loss = self._loss(batch) / self.accumulation
                self.scaler.scale(loss).backward()
            total += loss.detach()
        if self.clip_grad is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.parameters, self.clip_grad)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return total

    @property
    def lr(self) -> float:
        """The learning rate of the last step; with layer decay, that of the top layer.

        Parameter groups with a peak rate of their own (`optimizer.group_lr`) are ignored.
        """
        peak = self.optimizer.defaults["lr"]
        groups = self.optimizer.param_groups
        return max(group["lr"] for group in groups if group["initial_lr"] == peak)

    def fault(self, step: int) -> str | None:
        """Return a message if the weights after `step` steps are not all finite, else None.

        The losses do not show this, as they were computed before the last update.
        """
        return fault_in(self.module, step)

    @property
    def result(self) -> nn.Module:
        """The model that the run saves."""
        return self.model

    def state(self) -> dict[str, Any]:
        """Return the state that later steps need and that does not follow from their number."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "ema": None,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Load what `state` returned."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])


class ClassifierTrainer(EpochTrainer):
    """A classifier's loss, with mixing, and the moving average of its weights."""

    def __init__(
        self,
        model: nn.Module,
        recipe: ClassificationRecipe,
        seed: int,
        classes: int,
        steps_per_epoch: int,
        team: Team,
    ) -> None:
        self.mixing = build_mixing(recipe, classes)
        self.loss = build_loss(recipe).to(team.device)
        model.to(team.device).train()
        # Before compiling: a compiled model cannot be copied.
        self.ema = ModelEmaV3(model, recipe.ema_decay) if recipe.ema_decay else None
        if recipe.grad_checkpointing:
            checkpoint_gradients(model, recipe.model.name)
        if recipe.compile:
            model.compile()  # in place, so names in the state dict stay clean
        super().__init__(model, model, recipe, seed, steps_per_epoch, team)

    def _loss(self, batch: MicroBatch) -> Tensor:
        images, targets = self.mixing(
            batch.images.to(self.device, non_blocking=True),
            batch.labels.to(self.device, non_blocking=True),
        )
        with autocast(self.device.type, self.precision):
            logits = self.parallel(images)
        loss: Tensor = self.loss(logits.float(), targets)
        return loss

    def step(self, step: int, batches: Iterable[MicroBatch]) -> Tensor:
        """Take a step as `EpochTrainer.step`, then update the moving average."""
        loss = super().step(step, batches)
        if self.ema is not None:
            self.ema.update(self.model)
        return loss

    @property
    def result(self) -> nn.Module:
        """The model that the run saves: the moving average if the recipe has one."""
        return self.ema.module if self.ema is not None else self.model

    def state(self) -> dict[str, Any]:
        """Return `EpochTrainer.state` and the state dict of the moving average, if there is one."""
        ema = self.ema.module.state_dict() if self.ema is not None else None
        return {**super().state(), "ema": ema}

    def restore(self, state: dict[str, Any]) -> None:
        """Load what `state` returned."""
        super().restore(state)
        if self.ema is not None:
            self.ema.module.load_state_dict(state["ema"])


def synchronised(model: nn.Module, last: bool) -> AbstractContextManager[None]:
    """Return a context in which DDP averages gradients over processes only if `last` is true."""
    if isinstance(model, DistributedDataParallel) and not last:
        return model.no_sync()
    return nullcontext()


def fault_in(model: nn.Module, step: int) -> str | None:
    """Return a message if a weight of `model` is not finite after `step` steps, else None."""
    values = [value for value in model.state_dict().values() if value.is_floating_point()]
    if torch.stack(torch._foreach_norm(values, math.inf)).isfinite().all():
        return None
    return f"the weights are no longer finite after step {step}"


def checkpoint_gradients(model: nn.Module, name: str) -> None:
    """Let a model recompute its activations in the backward pass; VitrailError if it cannot."""
    try:
        model.set_grad_checkpointing(True)  # type: ignore[operator]
    except (AttributeError, AssertionError):
        raise VitrailError(
            f"model '{name}' has no gradient checkpointing: set grad_checkpointing to false"
        ) from None
