"""Backbones for dense tasks: timm's ``features_only``, with the place of every feature."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from timm.models import FeatureInfo, build_model_with_cfg
from timm.models._features import feature_take_indices
from torch import Tensor, nn

from vitrine.errors import VitrineError
from vitrine.shift.torus import Features, Frame


class StageFeatures(nn.Module):
    """The features of some stages of a model, without the parts that they do not need.

    Those would get no gradient, which distributed training refuses.

    Args:
        model: has ``forward_stages(images) -> list[Features]``, and timm's ``feature_info`` and
            ``prune_intermediate_layers``.
        out_indices: which stages, counted from the end if negative; a number means the last ones.

    Raises:
        VitrineError: there are fewer stages.
    """

    def __init__(self, model: Any, out_indices: int | Sequence[int], **_: Any) -> None:
        super().__init__()
        self.model = model
        stages: list[dict[str, Any]] = model.feature_info
        wanted = out_indices if isinstance(out_indices, int) else list(out_indices)
        try:
            taken, _last = feature_take_indices(len(stages), wanted)
        except AssertionError:
            raise VitrineError(
                f"out_indices is {out_indices}, and the model has {len(stages)} stages; "
                f"use indices from 0 to {len(stages) - 1}"
            ) from None
        model.prune_intermediate_layers(taken, prune_norm=True)
        self.out_indices = tuple(taken)
        self.feature_info = FeatureInfo(stages, self.out_indices)

    def forward(self, images: Tensor) -> list[Features]:
        """Return one `Features` for each of `out_indices`."""
        stages = self.model.forward_stages(images)
        return [stages[index] for index in self.out_indices]


def build(
    model_type: type[nn.Module], variant: str, pretrained: bool, stages: int, **kwargs: Any
) -> nn.Module:
    """Build a model by timm's rules, or with ``features_only`` the `StageFeatures` of it.

    Args:
        model_type: its class.
        variant: timm's name of the model, or of the plain one whose weights it may load.
        pretrained: load the weights.
        stages: how many it has.
        kwargs: of the class, or of timm's builder.
    """
    feature_cfg = {"out_indices": tuple(range(stages)), "feature_cls": StageFeatures}
    model: nn.Module = build_model_with_cfg(
        model_type, variant, pretrained, feature_cfg=feature_cfg, **kwargs
    )
    return model


class PlacedStages(nn.Module):
    """Gives a model of timm's stages with their places; comes before it in the bases of a class.

    The class has ``_stages``, which makes the tokens ``(B, H, W, C)`` of each stage, not
    normalised, and their frame, and a ``norm`` that takes such tokens.
    """

    _stages: Callable[[Tensor], Iterable[tuple[Tensor, Frame]]]
    norm: nn.Module
    final_is_flat = False  # whether the last tokens are (B, H W, C)

    def forward_stages(self, images: Tensor) -> list[Features]:
        """Return the tokens of every stage, not normalised, and where they sit in the images."""
        return [frame.place(tokens) for tokens, frame in self._stages(images)]

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | list[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> Any:
        """Return what timm's does: the tokens of `forward_stages`, without their places."""
        stages = [features.tokens for features in self.forward_stages(x)]
        final = self.norm(stages[-1].permute(0, 2, 3, 1))
        if norm:
            stages[-1] = final.permute(0, 3, 1, 2)
        taken, _ = feature_take_indices(len(stages), indices)
        chosen = [stages[index] for index in taken]
        if intermediates_only:
            return chosen
        return final.flatten(1, 2) if self.final_is_flat else final, chosen
