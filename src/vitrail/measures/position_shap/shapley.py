"""Position-SHAP: how much of a prediction is owed to position (position, Sec. 3).

A sample's logit f of its own class is shared between two players, the image x and the position
embedding P. A player who is absent is replaced by a background: other images x_b, and embeddings
P_b whose tokens are permuted. The logits are averaged over the background, as Kernel SHAP does (the
paper's text speaks of the mean feature). The values of the four coalitions,

    v(N) = f(x, P)            v(I) = mean_b f(x, P_b)
    v(P) = mean_b f(x_b, P)   v(0) = mean_b f(x_b, P_b)

give each player's Shapley value: phi_P + phi_I = v(N) - v(0). Kernel SHAP, which the paper runs,
solves a least-squares problem (position, App. A, Eq. 7-8) whose solution with two players is this
closed form. So `sweep` (ours: all other samples) and `paired` (the paper's half batches, App. E)
only supply the four values. P-SHAP is ``|phi_P| / (|phi_P| + |phi_I|)``, with the absolute values
that the authors' code takes and the paper does not print: only then it lies between 0 and 1. A
model's P-SHAP is the mean over the samples that it classifies correctly.

Ours, and from the same four values: how much position and image bring only together, the Shapley
interaction index of the two, ``v(N) - v(P) - v(I) + v(0)``.

Absolute values of noise are not 0 on average, so P-SHAP S(K) of K permutations is too high, by
about b / K for some b, and that of half of them by 2 b / K. The estimate is therefore
2 S(K) - (S of one half + S of the other) / 2, in which b cancels, at no further pass (Quenouille's
jackknife, 1956).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.errors import VitrailError

UNKNOWN = -1
"""The label of a sample whose predicted class is explained in the place of its true one."""
QUANTILE = 1.959964
"""The 97.5 % quantile of the standard normal distribution."""


@dataclass(frozen=True)
class PositionShap:
    """P-SHAP of n samples; all tensors are ``(n,)``, on the CPU, those of numbers float64."""

    samples: Tensor  # the indices of the samples in their dataset, ascending
    phi_position: Tensor  # the Shapley value of the position embedding
    phi_image: Tensor  # that of the image
    interaction: Tensor  # what the two bring only together, in logits as the two above
    debiased: Tensor  # P-SHAP corrected for few permutations; may be below 0 or above 1
    correct: Tensor  # booleans, which samples are classified correctly
    half_width: float | None  # of the 95 % interval of the mean; None of `paired`
    passes_per_sample: float
    samples_per_second: float  # of this call; a resumed one counts its own samples

    @property
    def values(self) -> Tensor:
        """P-SHAP of each sample from 0 to 1, without the correction for few permutations."""
        return position_share(self.phi_position, self.phi_image)

    @property
    def raw_mean(self) -> float:
        """The corrected mean over correct samples, NaN if none is; may be below 0 or above 1."""
        return self.debiased[self.correct].mean().item()

    @property
    def mean(self) -> float:
        """The model's P-SHAP: `raw_mean`, clipped to 0 and 1."""
        return _clip(self.raw_mean)

    @property
    def mean_interaction(self) -> float:
        """The interaction of position and image relative to their Shapley values, over all samples.

        It is the sum of the interaction over correct samples, divided by that of
        ``|phi_P| + |phi_I|``: above 0 where position helps more given the image than alone, below 0
        where one stands in for the other; NaN if no sample is correct. A ratio of sums, since the
        Shapley values of a sample may both be near 0 where its interaction is not.
        """
        total = self.phi_position.abs() + self.phi_image.abs()
        return (self.interaction[self.correct].sum() / total[self.correct].sum()).item()

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of `mean`, clipped to 0 and 1 too."""
        if self.half_width is None:
            return None
        return _clip(self.raw_mean - self.half_width), _clip(self.raw_mean + self.half_width)


def shapley(both: Tensor, image: Tensor, position: Tensor, none: Tensor) -> tuple[Tensor, Tensor]:
    """Return phi_P and phi_I of the coalition values v(N), v(I), v(P) and v(0), elementwise.

    Source: position, Eq. 3-4.
    """
    phi_position = ((position - none) + (both - image)) / 2
    phi_image = ((image - none) + (both - position)) / 2
    return phi_position, phi_image


def interaction(both: Tensor, image: Tensor, position: Tensor, none: Tensor) -> Tensor:
    """Return the Shapley interaction index of position and image, elementwise; as of `shapley`.

    Source: Grabisch and Roubens, International Journal of Game Theory 28 (1999), Def. 1, which is
    this difference where there are two players.
    """
    return both - image - position + none


def position_share(phi_position: Tensor, phi_image: Tensor) -> Tensor:
    """Return P-SHAP of Shapley values; 0 where both are 0, as the prediction does not change.

    Source: position, Eq. 5.
    """
    total = phi_position.abs() + phi_image.abs()
    return phi_position.abs() / torch.where(total == 0, 1, total)


def coalitions(
    clean: Tensor, permuted: Tensor, classes: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return v(N), v(I), v(P) and v(0) ``(n,)`` of samples, all others the background of each.

    Args:
        clean: f(x_i, P), the logits of all classes of each sample i, ``(n, classes)``.
        permuted: f(x_i, P_ik) of each, averaged over permutations k, ``(n, classes)``.
        classes: the class of each whose logit is explained, ``(n,)``.
        weights: of the samples in the background, ``(n,)``, with the sum 1.
    """
    both, image = own(clean, classes), own(permuted, classes)
    mean, mean_permuted = (weights @ clean)[classes], (weights @ permuted)[classes]
    position = (mean - weights * both) / (1 - weights)  # a sample is not in its own background
    none = (mean_permuted - weights * image) / (1 - weights)
    return both, image, position, none


def explain(
    clean: Tensor, permuted: Tensor, classes: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """Return phi_P and phi_I ``(n,)`` of samples; arguments are those of `coalitions`."""
    return shapley(*coalitions(clean, permuted, classes, weights))


def debias(clean: Tensor, halves: Sequence[Tensor], classes: Tensor, weights: Tensor) -> Tensor:
    """Return P-SHAP ``(n,)`` corrected for few permutations; halves are averaged over theirs.

    A bias of b / K cancels: 2 (S + b / K) - (S + 2 b / K) = S. A single permutation has no halves,
    and its P-SHAP stays as it is.
    """
    means = [average(halves), *halves] if len(halves) == 2 else list(halves)
    whole, *parts = (
        position_share(*explain(clean, permuted, classes, weights)) for permuted in means
    )
    return 2 * whole - (parts[0] + parts[1]) / 2 if parts else whole


def uniform(count: int) -> Tensor:
    """Return the equal weights of so many samples, ``(count,)`` float64 with the sum 1."""
    return torch.full((count,), 1 / count, dtype=torch.float64)


def average(halves: Sequence[Tensor]) -> Tensor:
    """Return the mean of one or two tensors; the mean of two equal values is exactly that value."""
    return halves[0] + (halves[-1] - halves[0]) / 2


def half_width(clean: Tensor, halves: Sequence[Tensor], classes: Tensor, correct: Tensor) -> float:
    """Return half of the width of the 95 % interval of the mean P-SHAP of correct samples.

    The mean is a function of the samples' weights, which count in the background too. Its
    derivative by a sample's weight is that sample's influence u, and the variance of the mean is
    the sum of u^2 / (n (n - 1)): the infinitesimal jackknife (Jaeckel, 1972; Efron, 1982, Ch. 6).
    NaN if no sample is correct. Tensors are as in `debias`; `correct` is ``(n,)`` bool.
    """
    count = len(clean)
    weights = uniform(count).requires_grad_()
    counted = weights * correct
    mean = (counted * debias(clean, halves, classes, weights)).sum() / counted.sum()
    (slope,) = torch.autograd.grad(mean, weights)
    influence = slope - slope.mean()
    return QUANTILE * (influence.square().sum() / (count * (count - 1))).sqrt().item()


def own(logits: Tensor, classes: Tensor) -> Tensor:
    """Return each row's logit of its own class: ``(n, classes)`` to ``(n,)``."""
    return logits.gather(1, classes[:, None])[:, 0]


def explained_classes(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the classes whose logits are explained: labels, or predictions where unknown.

    Raises:
        VitrailError: a label is none of the model's classes.
    """
    wrong = labels[(labels >= logits.shape[1]) | (labels < UNKNOWN)]
    if len(wrong):
        raise VitrailError(
            f"a sample's label is {wrong[0]}, but the model has {logits.shape[1]} classes: "
            "measure it on a dataset with its own classes"
        )
    return torch.where(labels == UNKNOWN, logits.argmax(dim=1), labels)


def _clip(share: float) -> float:
    return torch.tensor(share, dtype=torch.float64).clamp(0, 1).item()  # keeps NaN
