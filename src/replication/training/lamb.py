"""LAMB with a trust ratio for each irreducible representation (octic, Table 6, App. E.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from timm.optim.lamb import Lamb, lamb
from torch import Tensor

STACKED = (3, 5)
"""Numbers of dimensions of weights whose first axis stacks tensors: linear layers and filters."""


class StackedLamb(Lamb):
    """timm's LAMB, which treats a weight of 3 or 5 dimensions as a stack along its first axis.

    Our equivariant layers stack the weights of representations of equal size, which the authors'
    code keeps as separate parameters: ``(4, c', c)`` of an octic linear layer, ``(6, c, 3, p / 2,
    p / 2)`` of a patch embedding. LAMB scales the update of each tensor by the norm of its weights
    over the norm of its update (You et al., 2020, Alg. 2), so the scale depends on how weights are
    divided into tensors. The optimiser's state is kept for the whole weight.
    """

    @torch.no_grad()
    def step(  # type: ignore[override]  # timm names no overloads
        self, closure: Callable[[], float] | None = None
    ) -> float | None:
        """Update the parameters by their gradients; return the loss of `closure`, if given.

        `closure` is called first, with gradients enabled, to compute the loss again.
        """
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
    """Return the tensors that the stacks consist of, as views; other tensors stay whole."""
    parts = (stack.unbind() if stack.ndim in STACKED else (stack,) for stack in stacks)
    return [tensor for part in parts for tensor in part]
