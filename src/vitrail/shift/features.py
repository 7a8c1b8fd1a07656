"""Backbones for dense tasks: timm's ``features_only`` and ``forward_intermediates``, with places.

timm's functions return maps in the image's own order, whose places are off by at most half a
stride. `forward_stages` returns `Features`: the tokens in the order of the model, with their
places. `Features.aligned` makes these maps of them.
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
    """timm's features of some stages of a `StageModel`, without the parts that they do not need.

    The parameters of these parts would get no gradient, and distributed training then fails.

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
        """Return the tokens of each stage of `out_indices`, and where they sit in the images."""
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
    """Return timm's pretrained configs of plain models, such as their weights, for our models.

    `plain` maps the name of each of our models to that of timm's model. The configs have our names,
    so a model that was saved for a hub is loaded as the same model.
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

    The class must have ``_stages``. For each stage it yields the tokens in the shape that ``norm``
    takes, the tokens of the feature map ``(B, H, W, C)``, and their frame. The tokens are not
    normalised.
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
        """Return the last tokens and maps of the stages, or the maps alone, as timm's does.

        The tokens are those of `forward_features`. The maps are in the image's own order, as
        `Features.aligned` returns them. If the model pads images, the maps are cropped to the
        image.

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
    """Check that images ``(B, C, height, width)`` have the size that a model is `built_for`.

    Raises:
        VitrailError: they have another size; the message ends with the `remedy`.
    """
    size = tuple(images.shape[2:])
    if size != tuple(built_for):
        raise VitrailError(
            f"images of {size[0]}x{size[1]} pixels do not fit the model, which is built for "
            f"{built_for[0]}x{built_for[1]}: {remedy}"
        )
