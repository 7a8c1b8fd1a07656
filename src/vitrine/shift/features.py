"""A backbone for dense tasks: timm's ``features_only``, with the place of every feature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from timm.models import FeatureInfo
from timm.models._features import feature_take_indices
from torch import Tensor, nn

from vitrine.errors import VitrineError
from vitrine.shift.torus import Features


class StageFeatures(nn.Module):
    """Return the features of some stages of an adaptive model.

    Args:
        model: has ``forward_stages(images) -> list[Features]`` and timm's ``feature_info``.
        out_indices: which stages.
    """

    def __init__(self, model: Any, out_indices: Sequence[int] | None = None) -> None:
        super().__init__()
        self.model = model
        stages: list[dict[str, Any]] = model.feature_info
        self.out_indices = tuple(range(len(stages)) if out_indices is None else out_indices)
        self.feature_info = FeatureInfo(stages, self.out_indices)

    def forward(self, images: Tensor) -> list[Features]:
        """Return one `Features` for each of `out_indices`."""
        stages = self.model.forward_stages(images)
        return [stages[index] for index in self.out_indices]


def stage_features(model: Any, out_indices: int | Sequence[int], **_: Any) -> StageFeatures:
    """Return a model's `StageFeatures`, without the parts that they do not need.

    Those would get no gradient, which distributed training refuses.

    Args:
        model: as for `StageFeatures`, with timm's ``prune_intermediate_layers``.
        out_indices: which stages, counted from the end if negative; a number means the last ones.

    Raises:
        VitrineError: there are fewer stages.
    """
    stages = len(model.feature_info)
    wanted = out_indices if isinstance(out_indices, int) else list(out_indices)
    try:
        taken, _last = feature_take_indices(stages, wanted)
    except AssertionError:
        raise VitrineError(
            f"out_indices is {out_indices}, and the model has {stages} stages; "
            f"use indices from 0 to {stages - 1}"
        ) from None
    model.prune_intermediate_layers(taken, prune_norm=True)
    return StageFeatures(model, taken)


def intermediates(
    model: Any,
    images: Tensor,
    indices: int | list[int] | None,
    norm: bool,
    intermediates_only: bool,
) -> Any:
    """Return what timm's ``forward_intermediates`` does, of a model with ``forward_stages``.

    Args:
        model: its ``norm`` takes channels-last tokens.
        images: ``(B, 3, H, W)``.
        indices: which stages, the last ones if a number, all if None.
        norm: normalise the last stage's tokens among them.
        intermediates_only: leave out the last tokens, normalised, ``(B, H, W, C)``.

    Returns:
        the tokens of stages, ``(B, C, H, W)`` each, without their places.
    """
    stages = [features.tokens for features in model.forward_stages(images)]
    final = model.norm(stages[-1].permute(0, 2, 3, 1))
    if norm:
        stages[-1] = final.permute(0, 3, 1, 2)
    taken, _ = feature_take_indices(len(stages), indices)
    chosen = [stages[index] for index in taken]
    return chosen if intermediates_only else (final, chosen)
