"""Make a recipe's optimiser and its learning rate schedule, by timm.

timm applies no weight decay to biases, norms and what a model lists in `no_weight_decay()`, and
scales the learning rate of a layer by `layer_decay ** depth from the top`. Parameters to which the
recipe gives a peak rate of their own (`group_lr`) follow the same schedule, scaled to that peak.
"""

from __future__ import annotations

import inspect
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from timm.optim import Lamb, create_optimizer_v2, get_optimizer_class, list_optimizers
from timm.scheduler import create_scheduler_v2
from timm.scheduler.scheduler import Scheduler
from torch import nn
from torch.optim import Optimizer

from replication.training.lamb import StackedLamb
from vitrail.errors import VitrailError, require_known

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replication.config.recipe import EpochTraining


def build_optimizer(model: nn.Module, recipe: EpochTraining) -> Optimizer:
    """Make the recipe's optimiser over the parameter groups of `model`.

    Raises VitrailError if timm does not know its name, or a pattern of `group_lr` matches nothing.
    """
    spec = recipe.optimizer
    require_known("optimizer", spec.name, map(str, list_optimizers()))
    options: dict[str, Any] = {"betas": spec.betas, "eps": spec.eps}
    # One fused kernel for all parameters, where torch has it. Without it, the update takes a third
    # of the time of a small model's step.
    if "fused" in inspect.signature(get_optimizer_class(spec.name)).parameters:
        options["fused"] = True
    optimizer: Optimizer = create_optimizer_v2(
        model,
        opt=spec.name,
        lr=spec.lr,
        weight_decay=spec.weight_decay,
        momentum=spec.momentum,
        layer_decay=spec.layer_decay,
        **{name: value for name, value in options.items() if value is not None},
    )
    if type(optimizer) is Lamb and spec.trust_ratio == "representation":
        # The parameter groups keep all their options.
        optimizer = StackedLamb(optimizer.param_groups, lr=spec.lr)
    _set_own_rates(optimizer, model, spec.group_lr)
    return optimizer


def _set_own_rates(optimizer: Optimizer, model: nn.Module, group_lr: Mapping[str, float]) -> None:
    """Move the parameters that `group_lr` matches into groups with their own learning rate.

    All other options of these groups are those of the group that the parameters were in.
    """
    rates: dict[nn.Parameter, float] = {}
    for pattern, lr in group_lr.items():
        matched = [p for name, p in model.named_parameters() if fnmatchcase(name, pattern)]
        if not matched:
            raise VitrailError(
                f"optimizer.group_lr names '{pattern}', which matches no parameter of the model: "
                "correct or remove the pattern"
            )
        rates.update(dict.fromkeys(matched, lr))
    for group in list(optimizer.param_groups):
        members = group["params"]
        group["params"] = [p for p in members if p not in rates]
        for lr in sorted({rates[p] for p in members if p in rates}):
            own = [p for p in members if rates.get(p) == lr]
            optimizer.add_param_group({**group, "params": own, "lr": lr})


def build_scheduler(optimizer: Optimizer, recipe: EpochTraining, steps_per_epoch: int) -> Scheduler:
    """Make the schedule; `scheduler.step_update(t)` sets the rates of step `t`, counted from 0.

    The rates depend on `t` only, so a checkpoint does not need the schedule's state.
    """
    spec = recipe.schedule
    scheduler, _ = create_scheduler_v2(
        optimizer,
        sched=spec.name,
        num_epochs=spec.epochs,
        warmup_epochs=spec.warmup_epochs,  # type: ignore[arg-type]  # timm counts it in updates
        warmup_lr=spec.warmup_lr,
        min_lr=spec.min_lr,
        step_on_epochs=False,
        updates_per_epoch=steps_per_epoch,
    )
    return scheduler
