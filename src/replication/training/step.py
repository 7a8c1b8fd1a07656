"""One optimiser step, and the state that it changes.

A step is one global batch in micro-batches. A micro-batch is mixed, run forward and backward under
generators seeded for it alone, and its gradient is added with weight 1 / (their number). So one
process that accumulates and many that share the micro-batches compute the same step, up to the
order of that sum. (Batch-norm statistics are a micro-batch's own; with several processes their
running averages follow the micro-batches of rank 0.)

Mixed labels are soft and already smoothed (timm's `Mixup` does both), so they take a soft-target
loss; where nothing is mixed, the labels stay indices and the loss smooths them.
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
    """timm's Mixup, without the last image of an odd number: in a short last batch it is alone."""

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Mix ``(B, 3, H, W)`` and ``(B,)``."""
        even = len(images) // 2 * 2
        mixed: tuple[Tensor, Tensor] = super().__call__(images[:even], labels[:even])
        return mixed


def build_mixing(recipe: ClassificationRecipe, classes: int) -> Mixing:
    """Return what turns a micro-batch (B, 3, H, W), (B,) into what is trained on.

    Mixed targets are (B, classes), soft and smoothed. One draw serves the whole micro-batch, which
    is mixed with itself in reverse order. Raises VitrailError if it is odd and to be mixed.
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
    """Return the loss for what `build_mixing` makes, averaged over the micro-batch."""
    smoothing = recipe.label_smoothing
    if recipe.loss == "binary_cross_entropy":
        # It smooths indices only, not mixed targets. With DeiT III's threshold of 0 both labels of
        # a mixed image count whole, whatever their shares.
        return BinaryCrossEntropy(smoothing, target_threshold=recipe.bce_target_threshold)
    if recipe.augmentation.mixup or recipe.augmentation.cutmix:
        return SoftTargetCrossEntropy()
    return LabelSmoothingCrossEntropy(smoothing) if smoothing else nn.CrossEntropyLoss()


class EpochTrainer(ABC):
    """Model, optimiser and loss scale, moved on by `step`.

    `module` is what is trained and maps a micro-batch to a loss by `_loss`; `model` is the bare
    model in it, or it itself: its state dict has its own names, whatever wraps it.
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
        """The mean loss of a micro-batch, through `parallel`."""

    def step(self, step: int, batches: Iterable[MicroBatch]) -> Tensor:
        """Take optimiser step `step` on this process's micro-batches; return their mean loss.

        It stays on the device: reading it is left to the caller.
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
        """The learning rate of the last step (of the top layer, under layer decay).

        Groups with a peak of their own (`optimizer.group_lr`) do not count.
        """
        peak = self.optimizer.defaults["lr"]
        groups = self.optimizer.param_groups
        return max(group["lr"] for group in groups if group["initial_lr"] == peak)

    def fault(self, step: int) -> str | None:
        """Say if the weights after `step` steps, which no loss vouches for, are not finite."""
        return fault_in(self.module, step)

    @property
    def result(self) -> nn.Module:
        """The model that the run saves."""
        return self.model

    def state(self) -> dict[str, Any]:
        """Everything that a later step depends on and that does not follow from its number."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "ema": None,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to a `state`."""
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
        # Before compiling, which a copy would not survive.
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
        """As `EpochTrainer.step`; the moving average follows."""
        loss = super().step(step, batches)
        if self.ema is not None:
            self.ema.update(self.model)
        return loss

    @property
    def result(self) -> nn.Module:
        """What the run saves: the moving average if the recipe has one."""
        return self.ema.module if self.ema is not None else self.model

    def state(self) -> dict[str, Any]:
        """As `EpochTrainer.state`, with the moving average."""
        ema = self.ema.module.state_dict() if self.ema is not None else None
        return {**super().state(), "ema": ema}

    def restore(self, state: dict[str, Any]) -> None:
        """As `EpochTrainer.restore`."""
        super().restore(state)
        if self.ema is not None:
            self.ema.module.load_state_dict(state["ema"])


def synchronised(model: nn.Module, last: bool) -> AbstractContextManager[None]:
    """Let DDP average gradients with the last micro-batch only."""
    if isinstance(model, DistributedDataParallel) and not last:
        return model.no_sync()
    return nullcontext()


def fault_in(model: nn.Module, step: int) -> str | None:
    """Say if a model's weights after `step` steps hold a number that is not finite."""
    values = [value for value in model.state_dict().values() if value.is_floating_point()]
    if torch.stack(torch._foreach_norm(values, math.inf)).isfinite().all():
        return None
    return f"the weights are no longer finite after step {step}"


def checkpoint_gradients(model: nn.Module, name: str) -> None:
    """Recompute a model's activations in the backward pass; VitrailError if it cannot."""
    try:
        model.set_grad_checkpointing(True)  # type: ignore[operator]
    except (AttributeError, AssertionError):
        raise VitrailError(
            f"model '{name}' has no gradient checkpointing: set grad_checkpointing to false"
        ) from None
