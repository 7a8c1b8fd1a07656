"""The position embeddings that the paper compares, by name; each class names its source.

Source: position, Sec. 2, Sec. 5.5.

Where the equations are:

- Eq. 1 (patches X^P) and the projection Linear(X^P) of Eq. 2: `vitrail.position.vit`;
- the addition of P (Eq. 2): `base.AdditiveEmbedding.add`; of gamma P (Eq. 6): `auto.AutoPE`;
- the rotation of queries and keys (Eq. 10): `rope.RoPE.rotate`; by gamma theta (Eq. 11-12):
  `auto.AutoRoPE`;
- the measure Position-SHAP is in `vitrail.measures.position_shap`: `shapley` (Eq. 4-5), `kernel`
  (Eq. 3, Eq. 7-8), and the estimators `sweep` and `half_batches`.

`auto-<name>` is Auto-PE on an embedding that is added to the tokens, or on RoPE, where
`auto-rope-shared` has one gamma for all layers (App. I). The paper does not have `rope-axial` and
`alibi`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from vitrail.errors import VitrailError, did_you_mean
from vitrail.position.embeddings.absolute import APE, CAPE, FourierFeatures, Sinusoid, TunedSinusoid
from vitrail.position.embeddings.auto import AutoPE, AutoRoPE, AutoWrappedRoPE
from vitrail.position.embeddings.base import AdditiveEmbedding, Layout, PositionEmbedding
from vitrail.position.embeddings.relative import IRPE, RPE, AcrossOnly, ALiBi
from vitrail.position.embeddings.rope import AxialRoPE, RoPE

__all__ = ["EMBEDDINGS", "Layout", "PositionEmbedding", "build_embedding"]

_ADDITIVE: dict[str, type[AdditiveEmbedding]] = {
    "ape": APE,
    "sin": Sinusoid,
    "sin-tuned": TunedSinusoid,
    "ff": FourierFeatures,
    "cape": CAPE,
}


EMBEDDINGS: dict[str, Callable[[Layout], PositionEmbedding]] = {
    "none": PositionEmbedding,
    **_ADDITIVE,
    "rpe": RPE,
    "rpe-as-published": AcrossOnly,
    "irpe": IRPE,
    "rope": RoPE,
    "rope-axial": AxialRoPE,
    "alibi": ALiBi,
    **{f"auto-{name}": partial(AutoPE, embedding) for name, embedding in _ADDITIVE.items()},
    "auto-rope": AutoRoPE,
    "auto-rope-shared": partial(AutoRoPE, shared=True),
    "auto-rope-as-published": AutoWrappedRoPE,
}
"""Makes each embedding for a model's layout."""


def build_embedding(name: str, layout: Layout) -> PositionEmbedding:
    """Make the embedding of a name of `EMBEDDINGS`.

    Raises:
        VitrailError: there is none of that name, or the model's channels do not suit it.
    """
    if name not in EMBEDDINGS:
        raise VitrailError(f"unknown embedding '{name}'{did_you_mean(name, EMBEDDINGS)}")
    return EMBEDDINGS[name](layout)
