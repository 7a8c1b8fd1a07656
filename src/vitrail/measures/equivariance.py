"""How far a module is from commuting with a group: any module, any group.

With the octic group, of features ``(8, B, 196, c)`` and of images::

    from vitrail.octic.group import ELEMENTS, act, transform

    act = partial(act, grid=(14, 14))
    equivariance_error(OcticLinear(768, 768), Group(ELEMENTS, act, act), features)
    equivariance_error(OcticPatchEmbed(), Group(ELEMENTS, transform, act), images)
    equivariance_error(model, Group(ELEMENTS, transform), images)  # is it invariant?
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vitrail.errors import VitrailError


def unchanged(x: Tensor, element: Any) -> Tensor:
    """Act trivially: an output with this action is invariant."""
    return x


class Group(NamedTuple):
    """Elements of a group, and how they act on what a module takes and on what it returns.

    Attributes:
        elements: whatever the actions take.
        on_input: from x and an element g to g x.
        on_output: the same for the output; by default g y = y.
    """

    elements: Sequence[Any]
    on_input: Callable[[Tensor, Any], Tensor]
    on_output: Callable[[Tensor, Any], Tensor] = unchanged


@torch.inference_mode()
def equivariance_error(module: nn.Module, group: Group, x: Tensor) -> float:
    """Return the largest entry of ``|f(g x) - g f(x)|`` for the elements g of a group.

    Source: octic, Eq. 7-8.

    Args:
        module: f, of one tensor to one tensor; it is run in evaluation mode, and left as it was.
        group: the elements and their actions.
        x: what the module takes.

    Returns:
        about 1e-14 times the largest output for an equivariant f in float64, 1e-6 in float32.

    Raises:
        VitrailError: there are no elements, or the shapes of f(g x) and g f(x) differ.
    """
    if not group.elements:
        raise VitrailError("the group has no elements; give at least one")
    errors = []
    with evaluating(module):
        y = module(x)
        for element in group.elements:
            found, expected = module(group.on_input(x, element)), group.on_output(y, element)
            if found.shape != expected.shape:
                raise VitrailError(
                    f"for the element {element} the module returns {tuple(found.shape)}, and its "
                    f"moved output is {tuple(expected.shape)}; give the group's on_output"
                )
            errors.append((found - expected).abs().max())
    return torch.stack(errors).max().item()  # NaN where one is


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module into evaluation mode, and each of its parts back into its own mode after."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
