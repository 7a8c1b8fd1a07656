"""DINOv2's schedules, and its learning rates and weight decay by layer and by parameter.

Every schedule is a function of the step's number, so a checkpoint does not need its state.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from vitrail.octic.layers import OcticLayerScale

if TYPE_CHECKING:
    from replication.config.recipes.self_supervision import SelfSupervisionRecipe
    from replication.papers.octic.dinov2.network import Network

EMBEDDINGS = ("pos_embed", "patch_embed", "mask_token", "cls_token", "reg_token")


def ramp(step: int, start: float, end: float, steps: int) -> float:
    """Return a linear schedule: `start` at step 0, `end` at the last of `steps` and after it."""
    return end if step >= steps - 1 else start + (end - start) * step / (steps - 1)


def cosine(step: int, start: float, end: float, steps: int) -> float:
    """Return a half-cosine schedule: `start` at step 0, `end` at step `steps` and after it."""
    share = 0.5 * (1 + math.cos(math.pi * min(step / steps, 1)))
    return share * start + (1 - share) * end  # exact at both ends


class Schedules:
    """Schedules by step, as in DINOv2's published code; `lr` is the rate before layer decay."""

    lr = 0.0

    def __init__(self, recipe: SelfSupervisionRecipe, optimizer: torch.optim.Optimizer) -> None:
        self.recipe, self.optimizer = recipe, optimizer
        self._steps = recipe.schedule.planned_steps or recipe.schedule.steps

    def step_update(self, step: int) -> None:
        """Set learning rates and weight decay of `step`, counted from 0."""
        spec, steps = self.recipe.schedule, self._steps
        peak, warmup = self.recipe.optimizer.lr, spec.warmup_steps
        if step < warmup:
            self.lr = ramp(step, 0.0, peak, warmup)
        else:
            self.lr = cosine(step - warmup, peak, spec.min_lr, steps - warmup)
        decay = cosine(step, *self.recipe.optimizer.weight_decay, steps)
        for group in self.optimizer.param_groups:
            frozen = group["last_layer"] and step < spec.freeze_last_layer_steps
            group["lr"] = 0.0 if frozen else self.lr * group["lr_scale"]
            group["weight_decay"] = decay * group["wd_scale"]

    def momentum(self, step: int) -> float:
        """Return the momentum of the teacher's moving average in the update after `step`."""
        return cosine(step, *self.recipe.teacher.momentum, self._steps)

    def teacher_temperature(self, step: int) -> float:
        """Return the temperature of the targets at `step`."""
        spec = self.recipe.teacher
        return ramp(step, *spec.temperature, spec.temperature_steps)


def build_optimizer(network: Network, recipe: SelfSupervisionRecipe) -> torch.optim.Optimizer:
    """Make AdamW over groups of parameters that share rate and decay.

    The learning rate of layer l of n is scaled by ``layer_decay ** (n + 1 - l)``. Embeddings and
    tokens are layer 0; all other parameters outside of blocks are layer n + 1. The patch embedding
    is scaled by `patch_embed_scale`, too.
    Biases, norms and layer scales are not decayed; positions and tokens are. The rules go by name,
    as scales of octic layers are matrices. `decay_layer_scale` excepts the scales of octic blocks:
    the rule of octic's published code goes by names too, which these do not have there.
    """
    spec = recipe.optimizer
    layers = len(network.backbone.blocks)
    groups: dict[tuple[float, float, bool], dict[str, Any]] = {}
    octic = [module for module in network.modules() if isinstance(module, OcticLayerScale)]
    decayed = {module.gamma for module in octic if spec.decay_layer_scale}
    for name, parameter in network.named_parameters():
        part, _, inner = name.partition(".")
        layer = layers + 1
        if part == "backbone" and inner.startswith(EMBEDDINGS):
            layer = 0
        elif part == "backbone" and inner.startswith("blocks."):
            layer = int(inner.split(".")[1]) + 1
        scale = spec.layer_decay ** (layers + 1 - layer)
        if "patch_embed" in name:
            scale *= spec.patch_embed_scale
        plain = name.endswith(".bias") or "norm" in name or "gamma" in name
        wd_scale = 0.0 if plain and parameter not in decayed else 1.0
        key = (scale, wd_scale, "last_layer" in name)
        rules = dict(zip(("lr_scale", "wd_scale", "last_layer"), key, strict=True))
        groups.setdefault(key, {"params": [], **rules})["params"].append(parameter)
    return torch.optim.AdamW(list(groups.values()), lr=spec.lr, betas=spec.betas, fused=True)


@torch.no_grad()
def follow(teacher: nn.Module, student: nn.Module, momentum: float) -> None:
    """Update the teacher's weights, a moving average of the student's, in place."""
    torch._foreach_lerp_(
        list(teacher.parameters()), list(student.parameters()), weight=1 - momentum
    )
