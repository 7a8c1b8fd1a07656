"""Kernel SHAP of any number of features, by all of their coalitions (position, Sec. 2, App. A).

P-SHAP has two features, the image and the position embedding, and needs no regression: `shapley` is
the closed form of the regression here. M features, such as parts of both, need 2^M evaluations of
the network, one for each coalition.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from vitrail.errors import VitrailError


def kernel_shap(response: Callable[[Tensor], Tensor], features: int) -> Tensor:
    """Return the SHAP values ``(M,)`` of M features of one sample.

    Source: position, Eq. 3, Eq. 7-8 (Lundberg and Lee, NeurIPS 2017, Theorem 2).

    Eq. 3 is printed as a linear function of the feature values. Here, as in Lundberg and Lee, g is
    linear in indicators z: g = phi_0 + the sum of phi_i z_i, with z_i = 1 for a feature that is
    there and 0 for one that is removed.

    The loss of Eq. 8 is minimised over all coalitions. Its weight (Eq. 7) is infinite for the empty
    and for the full coalition, so that g equals f there: phi_0 is the response to the empty one,
    and the SHAP values sum up to how much the full one is above it. The last value follows from
    this sum, and the others from weighted least squares.

    Args:
        response: f, from coalitions ``(C, M)``, booleans that are true for present features, to
            ``(C,)``. It also decides by which background a removed feature is replaced.
        features: M.

    Raises:
        VitrailError: there are fewer than two features.
    """
    if features < 2:
        raise VitrailError(f"Kernel SHAP of {features} features explains nothing; give at least 2")
    coalitions = torch.tensor([*product((False, True), repeat=features)])  # none first, all last
    values = response(coalitions)
    none, every = values[0], values[-1]
    inner, sizes = coalitions[1:-1].to(values), coalitions[1:-1].sum(dim=1).tolist()
    weights = [(features - 1) / (math.comb(features, n) * n * (features - n)) for n in sizes]
    roots = torch.tensor(weights, dtype=values.dtype).sqrt()[:, None]
    design = inner[:, :-1] - inner[:, -1:]
    target = (values[1:-1] - none - inner[:, -1] * (every - none))[:, None]
    first = torch.linalg.lstsq(roots * design, roots * target).solution[:, 0]
    return torch.cat([first, (every - none - first.sum())[None]])
