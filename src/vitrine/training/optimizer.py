"""The optimiser with its parameter groups, and the learning rate of every step, through timm.

timm leaves biases, norms and what a model lists in `no_weight_decay()` without weight decay, and
scales the learning rate of a layer by `layer_decay ** depth from the top`.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import vitrine.torchvision_compat  # noqa: F401  # isort: skip  # timm imports torchvision
from timm.optim import create_optimizer_v2, get_optimizer_class, list_optimizers
from timm.scheduler import create_scheduler_v2
from timm.scheduler.scheduler import Scheduler
from torch import nn
from torch.optim import Optimizer

from vitrine.errors import VitrineError, did_you_mean

if TYPE_CHECKING:
    from vitrine.recipe import Recipe


def build_optimizer(model: nn.Module, recipe: Recipe) -> Optimizer:
    """Make the recipe's optimiser over the parameter groups of `model`.

    Raises:
        VitrineError: timm does not know the optimiser's name.
    """
    spec = recipe.optimizer
    known = [str(name) for name in list_optimizers()]
    if spec.name not in known:
        raise VitrineError(f"there is no optimizer '{spec.name}'{did_you_mean(spec.name, known)}")
    options: dict[str, Any] = {"betas": spec.betas, "eps": spec.eps}
    # One kernel for all parameters, where torch has it: a third of a small model's step else.
    if "fused" in inspect.signature(get_optimizer_class(spec.name)).parameters:
        options["fused"] = True
    return create_optimizer_v2(
        model,
        opt=spec.name,
        lr=spec.lr,
        weight_decay=spec.weight_decay,
        momentum=spec.momentum,
        layer_decay=spec.layer_decay,
        **{name: value for name, value in options.items() if value is not None},
    )


def build_scheduler(optimizer: Optimizer, recipe: Recipe, steps_per_epoch: int) -> Scheduler:
    """Make the schedule; `scheduler.step_update(t)` sets the rates of step `t`, counted from 0.

    It is a function of `t` alone: a resumed run needs no state of it.
    """
    spec = recipe.schedule
    scheduler, _ = create_scheduler_v2(
        optimizer,
        sched=spec.name,
        num_epochs=spec.epochs,
        warmup_epochs=spec.warmup_epochs,
        warmup_lr=spec.warmup_lr,
        min_lr=spec.min_lr,
        step_on_epochs=False,
        updates_per_epoch=steps_per_epoch,
    )
    return scheduler
