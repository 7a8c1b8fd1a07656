"""Six ways to make invariant features of octic ones (octic, Sec. 3.3.3, App. D).

The first four (linear, power spectrum, triple correlation, polynomial) compute polynomials or norms
of the eight numbers (x0..x7) of a channel; they take features ``(8, ..., c)``. They do not change
even if each channel is transformed by a different element. The last two (max filtering,
canonisation) compare whole tokens. A seventh, `absolute`, is the invariant that the authors' code
computes instead of the linear one. `group` has the irreps and their matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from vitrail.measures.equivariance import Group
from vitrail.measures.equivariance import largest_error as equivariance_error
from vitrail.octic.group import ELEMENTS, isotypic, transform
from vitrail.octic.layers import channels_of_plane

_ACTIONS = torch.stack([isotypic(element) for element in ELEMENTS])


def linear(x: Tensor) -> Tensor:
    """Return x0, the invariant irrep A1, ``(1, ..., c)`` (octic, Eq. 12)."""
    return x[:1]


def absolute(x: Tensor) -> Tensor:
    """Return ``|x0|``, ``(1, ..., c)``: the linear invariant of the authors' code."""
    return x[:1].abs()


def power_spectrum(x: Tensor) -> Tensor:
    """Return x0 and the norm of every other irrep, ``(6, ..., c)`` (octic, Eq. 14)."""
    pairs = torch.linalg.vector_norm(x[4:].unflatten(0, (2, 2)), dim=1)
    return torch.cat([x[:1], x[1:4].abs(), pairs])


def triple_correlation(x: Tensor) -> Tensor:
    """Return a basis of the invariants of degree three, ``(15, ..., c)`` (octic, Eq. 13)."""
    return torch.stack(
        [x[0] ** 3, *(x[0] * quadratic for quadratic in _quadratics(x)), *_cubics(x)]
    )


def polynomial(x: Tensor) -> Tensor:
    """Return generators of all invariant polynomials, ``(32, ..., c)`` (octic, Eq. 15)."""
    return torch.stack([x[0], *_quadratics(x), *_cubics(x), *_quartics(x), *_quintics(x)])


# Within a degree, the terms are in the order of the authors' code: published weights depend on it.


def _quadratics(x: Tensor) -> list[Tensor]:
    _, x1, x2, x3, x4, x5, x6, x7 = x
    return [x6**2 + x7**2, x4 * x6 + x5 * x7, x4**2 + x5**2, x3**2, x2**2, x1**2]


def _cubics(x: Tensor) -> list[Tensor]:
    _, x1, x2, x3, x4, x5, x6, x7 = x
    return [
        x3 * x6 * x7,
        x3 * (x5 * x6 + x4 * x7),
        x3 * x4 * x5,
        x2 * (x6**2 - x7**2),
        x2 * (x4 * x6 - x5 * x7),
        x2 * (x4**2 - x5**2),
        x1 * (x5 * x6 - x4 * x7),
        x1 * x2 * x3,
    ]


def _quartics(x: Tensor) -> list[Tensor]:
    _, x1, x2, x3, x4, x5, x6, x7 = x
    return [
        x6**4 + x7**4,
        x4 * x6**3 + x5 * x7**3,
        x4**2 * x6**2 + x5**2 * x7**2,
        x4**3 * x6 + x5**3 * x7,
        x4**4 + x5**4,
        x2 * x3 * (x5 * x6 - x4 * x7),
        x1 * x3 * (x6**2 - x7**2),
        x1 * x3 * (x4 * x6 - x5 * x7),
        x1 * x3 * (x4**2 - x5**2),
        x1 * x2 * x6 * x7,
        x1 * x2 * (x5 * x6 + x4 * x7),
        x1 * x2 * x4 * x5,
    ]


def _quintics(x: Tensor) -> list[Tensor]:
    _, x1, _, _, x4, x5, x6, x7 = x
    return [
        x1 * (x6**3 * x7 - x6 * x7**3),
        x1 * (x5 * x6**3 - x4 * x7**3),
        x1 * x4 * x5 * (x6**2 - x7**2),
        x1 * (x4**2 * x5 * x6 - x4 * x5**2 * x7),
        x1 * (x4**3 * x5 - x4 * x5**3),
    ]


class Invariant(nn.Module):
    """Maps ``(8, ..., c)`` to ``(..., M)``; M is `out_features`."""

    out_features: int


class Channelwise(Invariant):
    """An invariant of each channel by itself, ``(8, ..., c)`` to ``(..., M)``.

    Args:
        dim: C, channels of all planes together.
        function: ``(8, ..., c)`` to ``(k, ..., c)``.
        count: k, so that M = kc.

    Raises:
        VitrailError: `dim` is no multiple of 8.
    """

    def __init__(self, dim: int, function: Callable[[Tensor], Tensor], count: int) -> None:
        super().__init__()
        self.function = function
        self.out_features = count * channels_of_plane(dim)

    def forward(self, x: Tensor) -> Tensor:
        """Concatenate the invariants of all channels."""
        return self.function(x).movedim(0, -2).flatten(-2)


class Transformed(Invariant):
    """An invariant that is computed from the images of a token under all eight elements.

    The buffer `actions` has the elements' matrices, ``(8, 8, 8)``. Their entries are exact in every
    precision.
    """

    actions: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("actions", torch.empty(_ACTIONS.shape), persistent=False)
        self.init_non_persistent_buffers()

    def init_non_persistent_buffers(self) -> None:
        """Fill the buffer, which is in no state dict; timm calls this after `Module.to_empty`."""
        self.actions.copy_(_ACTIONS)

    def images(self, x: Tensor) -> Tensor:
        """Return the images ``(8, 8, ..., c)`` of features ``(8, ..., c)``."""
        return torch.einsum("gij,j...c->gi...c", self.actions.to(x), x)


class MaxFiltering(Transformed):
    """The largest inner product with any image of each learned token, M = 2C (octic, Eq. 16).

    Attributes:
        references: ``(8, M, c)``, M learned tokens, initially random tokens of unit length.

    Raises:
        VitrailError: `dim`, C, is no multiple of 8.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.out_features = 2 * dim
        tokens = torch.randn(8, self.out_features, channels_of_plane(dim))
        self.references = nn.Parameter(tokens / tokens.square().sum((0, 2), keepdim=True).sqrt())

    def forward(self, x: Tensor) -> Tensor:
        """Compare tokens ``(8, ..., c)`` with the references."""
        images = self.images(self.references)
        return torch.einsum("girc,i...c->g...r", images, x).amax(0)


class Canonisation(Transformed):
    """The image of a token that is closest to a reference, M = C (octic, Eq. 17).

    The paper calls the reference learnable. No gradient flows through the choice of an element, so
    here the reference keeps its random initial value.

    Attributes:
        reference: ``(8, c)``, of unit length, a buffer.

    Raises:
        VitrailError: `dim`, C, is no multiple of 8.
    """

    reference: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.out_features = dim
        token = torch.randn(8, channels_of_plane(dim))
        self.register_buffer("reference", token / token.norm())

    def forward(self, x: Tensor) -> Tensor:
        """Turn each token ``(8, ..., c)`` to the image closest to the reference."""
        images = self.images(x)
        likeness = torch.einsum("gi...c,ic->g...", images, self.reference)
        closest = functional.one_hot(likeness.argmax(0), len(ELEMENTS)).to(x)
        return torch.einsum("gi...c,...g->...ic", images, closest).flatten(-2)


INVARIANTS: dict[str, Callable[[int], Invariant]] = {
    "linear": partial(Channelwise, function=linear, count=1),
    "linear_absolute": partial(Channelwise, function=absolute, count=1),
    "power_spectrum": partial(Channelwise, function=power_spectrum, count=6),
    "triple_correlation": partial(Channelwise, function=triple_correlation, count=15),
    "polynomial": partial(Channelwise, function=polynomial, count=32),
    "max_filtering": MaxFiltering,
    "canonisation": Canonisation,
}
"""The invariants by name. Each is called with C, channels of all planes together."""


def invariance_error(model: nn.Module, images: Tensor) -> float:
    """Return the largest change of any logit under the octic group.

    Args:
        model: ``(B, C, H, W)`` to ``(B, classes)``; used in evaluation mode.
        images: squares.

    Returns:
        about 1e-14 for an invariant model in float64, about 1e-5 in float32.
    """
    return equivariance_error(model, Group(ELEMENTS, transform), images)
