"""Measure how far a module is from commuting with a group; for any module and any group.

With the octic group, of features ``(8, B, 196, c)`` and of images::

    from functools import partial
    from vitrail.octic.embeddings import OcticPatchEmbed
    from vitrail.octic.group import ELEMENTS, act, transform
    from vitrail.octic.layers import OcticLinear

    act = partial(act, grid=(14, 14))
    equivariance_error(OcticLinear(768, 768), features, Group(ELEMENTS, act, act))
    equivariance_error(OcticPatchEmbed(), images, Group(ELEMENTS, transform, act))
    equivariance_error(model, images, Group(ELEMENTS, transform)).within  # is it invariant?
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vitrail.errors import VitrailError


def unchanged(x: Tensor, element: Any) -> Tensor:
    """Act trivially: an output with this action is invariant."""
    return x


class Group(NamedTuple):
    """Elements of a group, and their actions on a module's input and output.

    Attributes:
        elements: in any representation that the actions accept.
        on_input: maps the input x and an element g to g x.
        on_output: the same for the output y; by default g y = y.
    """

    elements: Sequence[Any]
    on_input: Callable[[Tensor, Any], Tensor]
    on_output: Callable[[Tensor, Any], Tensor] = unchanged


TOLERANCES = {
    torch.float64: 1e-10,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}
"""Relative errors up to which a module counts as equivariant, by the precision of its output."""


class EquivarianceError(NamedTuple):
    """How far a module f is from commuting with a group, over all elements g and all entries."""

    absolute: float  # the largest |f(g x) - g f(x)|
    relative: float  # the same, over the largest |f(x)|
    tolerance: float  # of `TOLERANCES`, by the precision of f(x)

    @property
    def within(self) -> bool:
        """Whether the relative error is within the tolerance; False if it is NaN."""
        return self.relative <= self.tolerance


@torch.inference_mode()
def equivariance_error(module: nn.Module, x: Tensor, group: Group) -> EquivarianceError:
    """Measure by how much ``f(g x)`` and ``g f(x)`` differ for the elements g of a group.

    Source: octic, Eq. 7-8; shift, Eq. 3.

    Args:
        module: f, from one tensor to one tensor; run in evaluation mode, its mode is restored.
        x: the input of the module.
        group: the elements and their actions.

    Returns:
        the errors; for an equivariant f, the relative error is about 1e-14 in float64 and 1e-6 in
        float32.

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
    absolute, largest = torch.stack(errors).max().item(), y.abs().max().item()  # NaN where one is
    relative = absolute / largest if largest else (inf if absolute else absolute)
    return EquivarianceError(absolute, relative, TOLERANCES[y.abs().dtype])


def largest_error(module: nn.Module, group: Group, x: Tensor) -> float:
    """Return only the absolute error of `equivariance_error`."""
    return equivariance_error(module, x, group).absolute


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Set a module to evaluation mode during the block; then restore the mode of each part."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
