"""LAMB with a trust ratio for each irreducible representation (octic, Table 6, App. E.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from timm.optim.lamb import Lamb, lamb
from torch import Tensor

STACKED = (3, 5)
"""Dimensions of weights that stack tensors on their first axis: linear layers, patch filters."""


class StackedLamb(Lamb):
    """timm's LAMB, for which a weight of 3 or 5 dimensions is as many tensors as its first axis.

    Our equivariant layers stack the weights of representations of one size, which the authors'
    code keeps as separate parameters: ``(4, c', c)`` of an octic linear layer, ``(6, c, 3, p / 2,
    p / 2)`` of a patch embedding. LAMB scales the update of each tensor by the norm of its weights
    over that of its update (You et al., 2020, Alg. 2), so what counts as one matters. The state is
    that of the whole weight.
    """

    @torch.no_grad()
    def step(  # type: ignore[override]  # timm names no overloads
        self, closure: Callable[[], float] | None = None
    ) -> float | None:
        """Update the parameters by their gradients, after `closure` if there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        limit = self._get_clip_grad_norm()
        for group in self.param_groups:
            group["step"] = step = int(group.get("step", 0)) + 1
            moved = [p for p in group["params"] if p.grad is not None]
            for parameter in moved:
                for name in ("exp_avg", "exp_avg_sq"):
                    self.state[parameter].setdefault(name, torch.zeros_like(parameter))
            first, second = group["betas"]
            lamb(
                _tensors(parameter.detach() for parameter in moved),
                _tensors(parameter.grad for parameter in moved),
                _tensors(self.state[parameter]["exp_avg"] for parameter in moved),
                _tensors(self.state[parameter]["exp_avg_sq"] for parameter in moved),
                limit,
                lr=group["lr"],
                beta1=first,
                beta2=second,
                beta3=1 - first,
                bias_correction1=1 - first**step,
                bias_correction2=1 - second**step,
                eps=group["eps"],
                weight_decay=group["weight_decay"],
                decoupled_decay=False,
                max_lr=None,
                trust_clip=False,
                always_adapt=False,
                caution=False,
            )
        return loss


def _tensors(stacks: Iterable[Tensor]) -> list[Tensor]:
    """Take stacks apart, each into views."""
    parts = (stack.unbind() if stack.ndim in STACKED else (stack,) for stack in stacks)
    return [tensor for part in parts for tensor in part]
