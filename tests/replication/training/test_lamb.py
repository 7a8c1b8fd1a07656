"""LAMB of stacked weights against LAMB of the tensors that they stack."""

import pytest
import torch
from timm.optim import Lamb

from replication.training.lamb import StackedLamb

SHAPES = {
    "lines": (4, 5, 3),
    "filters": (6, 2, 3, 4, 4),
    "rows": (6, 4),
    "convolution": (4, 3, 2, 2),
}
OPTIONS = {"lr": 0.01, "weight_decay": 0.02, "eps": 1e-8}


def parameters():
    torch.manual_seed(0)
    made = {}
    for name, shape in SHAPES.items():
        size = torch.arange(1, shape[0] + 1).view(-1, *[1] * (len(shape) - 1))  # ratios differ
        made[name] = torch.nn.Parameter(size * torch.randn(shape, dtype=torch.float64))
    return made


def apart(weights):
    """Make a parameter of each tensor that LAMB is to see."""
    return {
        name: [torch.nn.Parameter(x.clone()) for x in weight.detach()]
        if name in ("lines", "filters")
        else [torch.nn.Parameter(weight.detach().clone())]
        for name, weight in weights.items()
    }


@pytest.mark.parametrize("foreach", [True, False])
def test_each_stacked_tensor_has_a_trust_ratio_of_its_own(foreach):
    weights = parameters()
    reference = apart(weights)
    ours = StackedLamb(weights.values(), foreach=foreach, **OPTIONS)
    whole = {name: torch.nn.Parameter(weight.detach().clone()) for name, weight in weights.items()}
    timms = Lamb(whole.values(), **OPTIONS)
    theirs = Lamb([x for parts in reference.values() for x in parts], **OPTIONS)
    for step in range(10):
        for name, weight in weights.items():
            weight.grad = torch.randn(SHAPES[name], dtype=torch.float64) * (1 + step)
            whole[name].grad = weight.grad.clone()
            parts = weight.grad if len(reference[name]) > 1 else weight.grad[None]
            for tensor, gradient in zip(reference[name], parts, strict=True):
                tensor.grad = gradient.clone()
        for optimizer in (ours, theirs, timms):
            optimizer.step()
        if step == 4:  # as a resumed run goes on
            state = ours.state_dict()
            ours = StackedLamb(weights.values(), **OPTIONS)
            ours.load_state_dict(state)
    for name, weight in weights.items():
        parts = reference[name]
        expected = torch.stack(list(parts)) if len(parts) > 1 else parts[0]
        assert torch.allclose(weight, expected, rtol=1e-12)
        assert torch.allclose(weight, whole[name], rtol=1e-6) == (len(parts) == 1)
