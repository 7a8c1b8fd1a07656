"""timm's models as backbones of mmseg, and its SwinV2, which mmseg lacks.

As in mmseg's own `SwinTransformer`, every stage ends with its own norm; all else is timm's.
`img_size` must be the size of the training crops, as timm shifts windows only in stages with more
than one. Images may have other sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import timm
from mmengine.model import BaseModule
from mmengine.registry import MODELS as CONVOLUTIONS
from mmseg.registry import MODELS
from timm.models import swin_transformer_v2
from torch import Tensor, nn

from vitrail.errors import VitrailError, first_line
from vitrail.segmentation.weights import load_weights, renamed
from vitrail.shift.geometry import Features
from vitrail.shift.upernet import stage_norm


def create(model_name: str, **kwargs: Any) -> Any:
    """Make a model of timm's for images of several sizes.

    Raises:
        VitrailError: timm refuses an argument or cannot fetch weights, or `pretrained` is a file,
            as mmseg's ``model.pretrained`` hands it on.
    """
    if isinstance(file := kwargs.get("pretrained"), str):
        raise VitrailError(
            f"model.pretrained '{file}' is not read by backbones of timm's: set "
            "model.pretrained=None, and name the file in "
            f"model.backbone.init_cfg=dict(type='Pretrained', checkpoint='{file}')"
        )
    try:
        return timm.create_model(model_name, num_classes=0, dynamic_img_size=True, **kwargs)
    except (TypeError, RuntimeError) as error:
        raise VitrailError(
            f"timm cannot make model.backbone '{model_name}' ({first_line(error)}): give it timm's "
            "arguments; mmseg's own, such as with_cp and frozen_stages, have no meaning here"
        ) from None
    except OSError as error:  # the errors of huggingface_hub are OSErrors
        raise VitrailError(
            f"cannot fetch the published weights of model.backbone '{model_name}' "
            f"({first_line(error)}): run this once where there is a network, or leave out "
            "pretrained and name a file in model.backbone.init_cfg.checkpoint"
        ) from None


@dataclass(frozen=True)
class Pyramid:
    """The input of adaptive heads: the features of each stage, for images of `size` pixels.

    The tokens may also cover padding, below and to the right of the image.
    """

    features: tuple[Features, ...]
    size: tuple[int, int]

    def __getitem__(self, index: Any) -> NoReturn:
        """Raise VitrailError: the head or neck does not consider the positions of features."""
        raise VitrailError(
            "mmseg's own heads and necks do not know where the features of AdaptiveSwin and "
            "AdaptiveSwinV2 sit: use AdaptiveUPerHead and AdaptiveFCNHead, and no neck"
        )


class TimmBackbone(BaseModule):
    """A timm model without its head, which returns the features of some stages or blocks.

    Later layers are removed: they would get no gradient, for which distributed training fails.
    """

    filter_fn: Callable[..., dict[str, Tensor]]  # timm's, of the model's published weights

    def __init__(
        self, model: nn.Module, out_indices: Iterable[int], init_cfg: dict[str, Any] | None
    ) -> None:
        super().__init__(init_cfg)
        self.model = cast(Any, model)
        self.out_indices = tuple(out_indices)
        self.register_load_state_dict_pre_hook(renamed)
        self.model.prune_intermediate_layers(list(self.out_indices), prune_norm=True)

    def init_weights(self) -> None:
        """Load the weights of `init_cfg`, if it names any; timm has drawn random ones."""
        if self.init_cfg:
            load_weights(self.model, self.init_cfg, self.filter_fn)

    def forward(self, images: Tensor) -> Any:
        """Return the features, each ``(B, C, h, w)``, of images ``(B, 3, H, W)``."""
        options = {"indices": list(self.out_indices), "intermediates_only": True}
        return tuple(self.model.forward_intermediates(images, **options))


class TimmStages(TimmBackbone):
    """A timm model with a norm for each of its stages; by default all stages are returned.

    `init_cfg` is None, or mmengine's ``dict(type="Pretrained", checkpoint=...)`` with published
    weights, see `vitrail.segmentation.weights`; `kwargs` are arguments of the model.
    """

    default_name: str

    def __init__(
        self,
        model_name: str | None = None,
        out_indices: Iterable[int] | None = None,
        init_cfg: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        model = create(model_name or self.default_name, **kwargs)
        stages = model.feature_info
        every = range(len(stages))
        super().__init__(model, every if out_indices is None else out_indices, init_cfg)
        for index in self.out_indices:
            self.add_module(f"norm{index}", stage_norm(stages[index]["num_chs"]))

    def normalise(self, index: int, tokens: Tensor) -> Tensor:
        """Apply the norm of a stage to its tokens ``(B, C, H, W)``."""
        normalised: Tensor = getattr(self, f"norm{index}")(tokens)
        return normalised


@MODELS.register_module()
class TimmSwinV2(TimmStages):
    """timm's SwinV2, which mmseg lacks."""

    default_name = "swinv2_tiny_window8_256"
    filter_fn = staticmethod(swin_transformer_v2.checkpoint_filter_fn)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return the features of each stage, ``(B, C, H, W)``, of images ``(B, 3, H, W)``."""
        return tuple(map(self.normalise, self.out_indices, super().forward(images)))


@CONVOLUTIONS.register_module()
class CircularConv2d(nn.Conv2d):
    """torch's convolution with circular padding, for ``conv_cfg`` of mmseg's heads.

    In the tests under circular shifts, all of UperNet uses it, plain or adaptive (shift, Sec. 5.5).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "padding_mode": "circular"})
