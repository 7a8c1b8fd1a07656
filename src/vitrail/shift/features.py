"""Backbones for dense tasks: timm's ``features_only`` and ``forward_intermediates``, with places.

timm's maps are tensors in the image's own order, at most half a stride off. `forward_stages` has
the tokens as the model orders them, beside their places; its ``features.aligned()`` are the maps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from timm.models import build_model_with_cfg, generate_default_cfgs
from timm.models._features import FeatureGetterNet, feature_take_indices
from timm.models._registry import get_arch_pretrained_cfgs
from torch import Tensor, nn

from vitrail.errors import VitrailError, require_known
from vitrail.shift.geometry import Features, Frame

FORMATS = ("NCHW", "NLC")


class StageFeatures(FeatureGetterNet):
    """timm's features of some stages of `StageModel`, without the parts that they do not need.

    Those would get no gradient, which distributed training refuses.

    Raises:
        VitrailError: there are fewer stages than `out_indices` asks for.
    """

    def __init__(self, model: Any, out_indices: int | Sequence[int] | None, **options: Any) -> None:
        if out_indices is None:  # all stages
            out_indices = range(len(model.feature_info))
        try:
            super().__init__(model, cast(Any, out_indices), **options)
        except AssertionError:
            stages = len(model.feature_info)
            raise VitrailError(
                f"out_indices is {out_indices}, and the model has {stages} stages; "
                f"use indices from 0 to {stages - 1}"
            ) from None

    def forward_stages(self, images: Tensor) -> list[Features]:
        """Return, for each of `out_indices`, the tokens and where they sit in the images."""
        stages = cast(StageModel, self.model).forward_stages(images)
        return [stages[index] for index in cast(list[int], self.out_indices)]


def build(
    model_type: Callable[..., nn.Module], name: str, pretrained: bool, **kwargs: Any
) -> nn.Module:
    """Build a registered model by timm's rules, or with ``features_only`` its `StageFeatures`.

    `model_type` is a class or a function that returns a model; `kwargs` are its options and timm's.
    """
    feature_cfg = {"out_indices": None, "feature_cls": StageFeatures}
    return build_model_with_cfg(model_type, name, pretrained, feature_cfg=feature_cfg, **kwargs)


def default_cfgs_of(plain: Mapping[str, str]) -> dict[str, Any]:
    """Return what timm records of plain models, such as their weights, for models of ours.

    `plain` names timm's model for each of ours. Under its own name, a model that is saved for a hub
    comes back as itself.
    """
    return generate_default_cfgs(
        {
            tagged.replace(theirs, ours, 1): cfg
            for ours, theirs in plain.items()
            for tagged, cfg in get_arch_pretrained_cfgs(theirs).items()
        }
    )


class StageModel(nn.Module):
    """Mix-in of a model of stages whose features have places: list it before timm's class.

    The class has ``_stages``, which yields for each stage, not normalised, the tokens as ``norm``
    takes them, those of the feature map ``(B, H, W, C)``, and their frame.
    """

    _stages: Callable[[Tensor], Iterable[tuple[Tensor, Tensor, Frame]]]
    stages: Any
    norm: nn.Module

    def forward_features(self, x: Tensor) -> Tensor:
        """Return the last stage's tokens of images ``(B, C, height, width)``, normalised."""
        for tokens, _, _ in self._stages(x):
            last = tokens
        return cast(Tensor, self.norm(last))

    def forward_stages(self, images: Tensor) -> list[Features]:
        """Return the tokens of every stage, not normalised, and where they sit in the images."""
        return [frame.place(feature_map) for _, feature_map, frame in self._stages(images)]

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | list[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> Any:
        """Return what timm's does: maps in the image's own order, as `Features.aligned` has them.

        Maps of images that the model pads are cropped to the image.

        The last tokens, beside which they stand, are those of `forward_features`.

        Raises:
            VitrailError: `output_fmt` is unknown.
        """
        require_known("output_fmt", output_fmt, FORMATS)
        taken, max_index = feature_take_indices(len(self.stages), indices)
        last, intermediates = len(self.stages) - 1, []
        for index, (tokens, feature_map, frame) in enumerate(self._stages(x)):
            if index == last:
                tokens = self.norm(tokens)
            if index in taken:
                feature_map = self.norm(feature_map) if norm and index == last else feature_map
                height, width = (-(-side // frame.stride) for side in x.shape[2:])
                taken_map = frame.place(feature_map).aligned().tokens[:, :, :height, :width]
                is_map = output_fmt == "NCHW"
                intermediates.append(taken_map if is_map else taken_map.flatten(2).mT)
            if stop_early and index == max_index:
                break
        return intermediates if intermediates_only else (tokens, intermediates)


def require_size(
    images: Tensor, built_for: Sequence[int], remedy: str = "give it this img_size"
) -> None:
    """Refuse images ``(B, C, height, width)`` of another size than a model is `built_for`.

    Raises:
        VitrailError: they have another size; the sentence ends with the `remedy`.
    """
    size = tuple(images.shape[2:])
    if size != tuple(built_for):
        raise VitrailError(
            f"images of {size[0]}x{size[1]} pixels do not fit the model, which is built for "
            f"{built_for[0]}x{built_for[1]}: {remedy}"
        )
