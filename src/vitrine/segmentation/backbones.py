"""timm's Swin and SwinV2 as backbones of mmseg, plain and truly shift-equivariant.

As in mmseg's own `SwinTransformer`, every stage ends in a norm of its own. All else, parameters and
their names are timm's, and a model of any size is had by timm's arguments:

    backbone = dict(type="AdaptiveSwin", img_size=448, drop_path_rate=0.3, selection="fast")

`img_size` is that of the crops: timm shifts windows only in stages that have several. Images of
other sizes are taken too.

`CircularConv2d` is a convolution on an image without borders, ``conv_cfg=dict(type=...)`` of
mmseg's heads. The paper's models under circular shifts, plain and adaptive, have it in all of
UperNet (Sec. 5.5).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import timm
from mmengine.model import BaseModule
from mmengine.registry import MODELS as CONVOLUTIONS
from mmseg.registry import MODELS
from timm.layers import LayerNorm2d
from timm.models import swin_transformer, swin_transformer_v2
from torch import Tensor, nn

from vitrine.segmentation.weights import load_weights
from vitrine.shift.torus import Features

EPS = 1e-5  # of the norms, as in mmseg's SwinTransformer


class TimmStages(BaseModule):
    """A model of timm's, and a norm for each of its stages.

    Args:
        model_name: timm's name.
        out_indices: which stages are returned; all by default.
        init_cfg: None, or mmengine's ``dict(type="Pretrained", checkpoint=...)`` with the published
            weights, see `vitrine.segmentation.weights`.
        kwargs: of the model.
    """

    filter_fn: Callable[..., dict[str, Tensor]] = staticmethod(
        swin_transformer.checkpoint_filter_fn
    )

    def __init__(
        self,
        model_name: str,
        out_indices: Sequence[int] | None = None,
        init_cfg: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(init_cfg)
        model = timm.create_model(model_name, num_classes=0, dynamic_img_size=True, **kwargs)
        self.model = cast(Any, model)
        stages = self.model.feature_info
        self.out_indices = tuple(range(len(stages)) if out_indices is None else out_indices)
        # What is not needed would get no gradient, which distributed training refuses.
        self.model.prune_intermediate_layers(list(self.out_indices), prune_norm=True)
        for index in self.out_indices:
            self.add_module(f"norm{index}", LayerNorm2d(stages[index]["num_chs"], eps=EPS))

    def init_weights(self) -> None:
        """Load the weights of `init_cfg`, if it names any; timm has drawn random ones."""
        if self.init_cfg:
            load_weights(self.model, self.init_cfg, self.filter_fn)

    def normalise(self, index: int, tokens: Tensor) -> Tensor:
        """Apply the norm of a stage to its tokens ``(B, C, H, W)``."""
        normalised: Tensor = getattr(self, f"norm{index}")(tokens)
        return normalised


class AdaptiveStages(TimmStages):
    """A model of ours whose stages say where their tokens sit."""

    def forward(self, images: Tensor) -> tuple[Features, ...]:
        """Return the features of each stage of images ``(B, 3, H, W)``.

        Raises:
            VitrineError: H or W does not fit the windows.
        """
        stages = self.model.forward_stages(images)
        return tuple(
            stages[index]._replace(tokens=self.normalise(index, stages[index].tokens))
            for index in self.out_indices
        )


@MODELS.register_module()
class AdaptiveSwin(AdaptiveStages):
    """A-Swin, by default A-Swin-T; for images of multiples of 224 pixels.

    Args:
        model_name: a model of `vitrine.shift.swin`.
        kwargs: of it and of `TimmStages`.
    """

    def __init__(self, model_name: str = "a_swin_tiny_patch4_window7_224", **kwargs: Any) -> None:
        super().__init__(model_name, **kwargs)


@MODELS.register_module()
class AdaptiveSwinV2(AdaptiveStages):
    """A-SwinV2, by default A-SwinV2-T; for images of multiples of 256 pixels.

    Args:
        model_name: a model of `vitrine.shift.swinv2`.
        kwargs: of it and of `TimmStages`.
    """

    filter_fn = staticmethod(swin_transformer_v2.checkpoint_filter_fn)

    def __init__(self, model_name: str = "a_swinv2_tiny_window8_256", **kwargs: Any) -> None:
        super().__init__(model_name, **kwargs)


@MODELS.register_module()
class TimmSwinV2(TimmStages):
    """timm's SwinV2, which mmseg lacks, by default SwinV2-T.

    Args:
        model_name: timm's name.
        kwargs: of the model and of `TimmStages`.
    """

    filter_fn = staticmethod(swin_transformer_v2.checkpoint_filter_fn)

    def __init__(self, model_name: str = "swinv2_tiny_window8_256", **kwargs: Any) -> None:
        super().__init__(model_name, **kwargs)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return the features of each stage, ``(B, C, H, W)``, of images ``(B, 3, H, W)``."""
        stages = self.model.forward_intermediates(
            images, indices=list(self.out_indices), intermediates_only=True
        )
        return tuple(map(self.normalise, self.out_indices, stages))


@CONVOLUTIONS.register_module()
class CircularConv2d(nn.Conv2d):
    """torch's convolution with circular padding."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "padding_mode": "circular"})
