"""Position-SHAP: how much of a prediction is due to position (position, Sec. 3).

Applied to two small models: examples/position.py.

The network's response f, a sample's logit of its own class, is divided between two features: the
image X and the position embedding P. (The paper's text gives each element of X and P a SHAP value
and adds these up. `replication.papers.position.kernel_shap` divides both into parts, to compare.)

A feature that is removed is replaced by a background: other images X_b, or embeddings P_b whose
tokens are permuted. The logits are averaged over the background, as the Kernel SHAP software does
(the paper's text instead averages the features; `replication.papers.position.kernel_shap` measures
what that changes). So the four coalitions of X and P have the values

    v(N) = f(X, P)            v(I) = mean_b f(X, P_b)
    v(P) = mean_b f(X_b, P)   v(0) = mean_b f(X_b, P_b)

In v(N), as in game theory, N is the set of all players, here both features. Elsewhere N is the
number of positions.

The logits come from `sweep` (ours: all other samples are the background), which calls `estimate`,
or from `half_batches` (the paper's half batches, App. E). These two files only run the model. The
model itself permutes the tokens of P: in this library's ViT `AdditiveEmbedding.add` and
`RoPE.rotate`, in timm's models `vitrail.measures.permutable`. `kernel` has Eq. 3, 7 and 8 for any
number of features, only to compare. The rest is here:

- `coalitions`: the four values of a sweep;
- `shapley` (Eq. 3-4; Eq. 7-8 in closed form): the SHAP values phi_P and phi_I;
- `position_share` (Eq. 5): P-SHAP of a sample;
- `PositionShap.mean`: P-SHAP of a model, the mean over the samples that it classifies correctly.

The paper does not have these:

- `debias`: the correction for few permutations, which the mean of a sweep has;
- `estimate`: the interval of the mean, from the derivative of the mean by the samples' weights;
- `interaction` of the two features, from the same four values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.errors import VitrailError
from vitrail.measures.outputs import UNKNOWN

QUANTILE = 1.959964
"""The 97.5 % quantile of the standard normal distribution."""


@dataclass(frozen=True)
class PositionShap:
    """P-SHAP of n samples; all tensors are ``(n,)``, on the CPU, those of numbers float64."""

    samples: Tensor  # the indices of the samples in their dataset, ascending
    phi_position: Tensor  # phi_P, the SHAP value of the position embedding
    phi_image: Tensor  # phi_I, that of the image
    interaction: Tensor  # v(N) - v(I) - v(P) + v(0), in logits as the two above
    debiased: Tensor  # P-SHAP corrected for few permutations; may be below 0 or above 1
    correct: Tensor  # booleans, which samples are classified correctly
    half_width: float | None  # of the 95 % interval of the mean; None by half batches
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
        """The model's P-SHAP (position, Sec. 3): `raw_mean`, clipped to 0 and 1 (ours)."""
        return _clip(self.raw_mean)

    def require_correct(self) -> PositionShap:
        """Return this result.

        Raises:
            VitrailError: no sample is classified correctly, so that there is no mean.
        """
        if not self.correct.any():
            raise VitrailError(
                "the model classifies none of the images correctly, and P-SHAP is of those: give "
                "images of its own classes"
            )
        return self

    @property
    def mean_interaction(self) -> float:
        """The interaction of position and image relative to their SHAP values.

        It is the sum of the interaction over correct samples, divided by that of
        ``|phi_P| + |phi_I|``: above 0 where position helps more given the image than alone, below 0
        where one stands in for the other; NaN if no sample is correct, or if no logit of a correct
        one depends on position or image. A ratio of sums, since the SHAP values of a sample may
        both be near 0 where its interaction is not.
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

    Source: position, Eq. 3-4, Eq. 7-8.

    Kernel SHAP fits g = phi_0 + z_P phi_P + z_I phi_I to the four values, z = 1 for a feature that
    is there and 0 for one that is removed. Eq. 4 is printed with the sums over the elements of P
    and X in the place of z_P and z_I; the indicators are those of Lundberg and Lee (see `kernel`).

    The weight of Eq. 7, with M = 2, is infinite for the empty and the full coalition, so g equals f
    there: phi_0 = v(0), and phi_P + phi_I = v(N) - v(0). The other two have the weight 1/2 each,
    and the minimum of the loss of Eq. 8,
    [v(P) - v(0) - phi_P]^2 / 2 + [v(I) - v(0) - phi_I]^2 / 2, is the closed form below: the Shapley
    values, means over both orders in which the features can be added.
    """
    phi_position = ((position - none) + (both - image)) / 2
    phi_image = ((image - none) + (both - position)) / 2
    return phi_position, phi_image


def position_share(phi_position: Tensor, phi_image: Tensor) -> Tensor:
    """Return P-SHAP, ``|phi_P| / (|phi_P| + |phi_I|)``, elementwise.

    Source: position, Eq. 5, which is printed without the absolute values that the authors' code
    takes: only with them it lies between 0 and 1. It is 0 where both are 0, as the prediction does
    not change.
    """
    total = phi_position.abs() + phi_image.abs()
    return phi_position.abs() / torch.where(total == 0, 1, total)


def interaction(both: Tensor, image: Tensor, position: Tensor, none: Tensor) -> Tensor:
    """Return the Shapley interaction index of position and image, elementwise; as of `shapley`.

    Source: Grabisch and Roubens, International Journal of Game Theory 28 (1999), Def. 1, which is
    this difference where there are two players.
    """
    return both - image - position + none


def coalitions(
    clean: Tensor, permuted: Tensor, classes: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return v(N), v(I), v(P) and v(0) ``(n,)`` of samples, all others the background of each.

    Args:
        clean: f(X_i, P), the logits of all classes of each sample i, ``(n, classes)``.
        permuted: f(X_i, P_ik) of each, averaged over permutations k, ``(n, classes)``.
        classes: the class of each whose logit is explained, ``(n,)``.
        weights: of the samples in the background, ``(n,)``, with the sum 1.
    """
    both, image = logit_of_class(clean, classes), logit_of_class(permuted, classes)  # v(N), v(I)
    mean, mean_permuted = (weights @ clean)[classes], (weights @ permuted)[classes]
    position = (mean - weights * both) / (1 - weights)  # v(P): without the sample itself
    none = (mean_permuted - weights * image) / (1 - weights)  # v(0), likewise
    return both, image, position, none


def explain(
    clean: Tensor, permuted: Tensor, classes: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """Return phi_P and phi_I ``(n,)`` of samples; arguments are those of `coalitions`."""
    return shapley(*coalitions(clean, permuted, classes, weights))


def debias(
    clean: Tensor, halves: Sequence[Tensor], classes: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return phi_P, phi_I and P-SHAP corrected for few permutations, ``(n,)`` each.

    Absolute values of noise are not 0 on average, so P-SHAP S(K) of K permutations is too high, by
    about b / K for some b, and that of half of them by 2 b / K. In 2 S(K) - (S of one half + S of
    the other) / 2 the b cancels, at no further pass (Quenouille's jackknife, 1956). A single
    permutation has no halves, and its P-SHAP stays as it is. Arguments are as in `coalitions`;
    `halves` are averaged over one half of the permutations each.
    """
    phi_position, phi_image = explain(clean, average(halves), classes, weights)
    share = position_share(phi_position, phi_image)
    if len(halves) == 2:
        first, second = (position_share(*explain(clean, h, classes, weights)) for h in halves)
        share = 2 * share - (first + second) / 2
    return phi_position, phi_image, share


def average(halves: Sequence[Tensor]) -> Tensor:
    """Return the mean of one or two halves; of equal halves exactly their value."""
    return halves[0] + (halves[-1] - halves[0]) / 2


@torch.inference_mode(False)  # also where the caller needs no gradients
def estimate(
    samples: Tensor, labels: Tensor, logits: Tensor, passes: float, speed: float
) -> PositionShap:
    """Explain samples, each with all others as its background, and give their mean an interval.

    The mean P-SHAP of correct samples is a function of the samples' weights, which also weight the
    background. Its derivative by a sample's weight is that sample's influence u, and the
    variance of the mean is the sum of u^2 / (n (n - 1)): the infinitesimal jackknife (Jaeckel,
    1972; Efron, 1982, Ch. 6). The half width is NaN if no sample is correct.

    Args:
        samples: their indices, ``(n,)``, at least two.
        labels: ``(n,)``, see `explained_classes`.
        logits: ``(n, 1 + halves, classes)`` float64: as they are, and averaged over each half of
            the permutations.
        passes: `PositionShap.passes_per_sample`.
        speed: `PositionShap.samples_per_second`.

    Raises:
        VitrailError: as `explained_classes`.
    """
    if logits.is_inference():  # autograd takes none that a caller made in inference mode
        logits = logits.clone()
    clean, *halves = logits.unbind(dim=1)
    classes, count = explained_classes(clean, labels), len(samples)
    correct = clean.argmax(dim=1) == classes
    weights = torch.full((count,), 1 / count, dtype=torch.float64, requires_grad=True)
    counted = weights * correct
    phi_position, phi_image, shares = debias(clean, halves, classes, weights)
    mean = (counted * shares).sum() / counted.sum()
    (slope,) = torch.autograd.grad(mean, weights)
    influence = slope - slope.mean()
    half_width = QUANTILE * (influence.square().sum() / (count * (count - 1))).sqrt().item()
    return PositionShap(
        samples,
        phi_position.detach(),
        phi_image.detach(),
        interaction(*coalitions(clean, average(halves), classes, weights.detach())),
        debiased=shares.detach(),
        correct=correct,
        half_width=half_width,
        passes_per_sample=passes,
        samples_per_second=speed,
    )


def logit_of_class(logits: Tensor, classes: Tensor) -> Tensor:
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
    return min(max(share, 0.0), 1.0)  # keeps NaN
