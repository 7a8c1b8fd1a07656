"""UperNet's heads of mmseg, truly shift-equivariant (shift, Sec. 4, "Segmentation").

`AdaptiveUPerHead` is `vitrail.shift.upernet.AdaptiveUPerNetDecoder` with mmseg's losses and
configuration; `AdaptiveFCNHead` is mmseg's `FCNHead` with circular padding. Both have the
parameters of mmseg's heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from mmcv.cnn import build_activation_layer, build_conv_layer, build_norm_layer
from mmseg.models.decode_heads import FCNHead
from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from mmseg.registry import MODELS
from torch import Tensor, nn

from vitrail.errors import VitrailError
from vitrail.segmentation.backbones import Pyramid
from vitrail.shift.geometry import Features, Mode, to_pixels
from vitrail.shift.upernet import AdaptiveUPerNetDecoder

CIRCULAR = {"type": "CircularConv2d"}
BATCH_NORM = {"type": "BN"}


@MODELS.register_module()
class AdaptiveUPerHead(BaseDecodeHead):
    """mmseg's `UPerHead`, shift-equivariant; `kwargs` are those of all heads of mmseg's.

    `upsampling` is that of `vitrail.shift.upernet.AdaptiveUPerNetDecoder`, "bilinear" or
    "zero_insert".
    """

    def __init__(
        self,
        pool_scales: Sequence[int] = (1, 2, 3, 6),
        upsampling: Mode = "bilinear",
        conv_cfg: dict[str, Any] = CIRCULAR,
        norm_cfg: dict[str, Any] = BATCH_NORM,
        **kwargs: Any,
    ) -> None:
        options = {"conv_cfg": conv_cfg, "norm_cfg": norm_cfg, **kwargs}
        super().__init__(input_transform="multiple_select", **options)
        decoder = AdaptiveUPerNetDecoder(
            self.in_channels,
            self.channels,
            num_classes=0,
            bins=pool_scales,
            upsampling=upsampling,
            conv_layer=partial(build_conv_layer, conv_cfg),
            norm_layer=lambda channels: build_norm_layer(norm_cfg, channels)[1],
            act_layer=partial(build_activation_layer, self.act_cfg),
        )
        decoder.conv_seg, decoder.dropout = self.conv_seg, self.dropout or nn.Identity()
        # The decoder's parts are registered, not the decoder, so weights have mmseg's names.
        for name, part in decoder.named_children():
            setattr(self, name, part)
        object.__setattr__(self, "decoder", decoder)

    def forward(self, inputs: Pyramid) -> Tensor:
        """Return logits ``(B, classes, height, width)``, one a pixel.

        Raises VitrailError where the backbone does not say where its features sit.
        """
        features = _placed(inputs)
        logits: Tensor = self.decoder([features[index] for index in self.in_index], inputs.size)
        return logits

    def predict_by_feat(self, seg_logits: Tensor, batch_img_metas: list[dict[str, Any]]) -> Tensor:
        """Return the logits, which need no resizing to the image."""
        return seg_logits


@MODELS.register_module()
class AdaptiveFCNHead(FCNHead):
    """mmseg's `FCNHead`, shift-equivariant."""

    def __init__(self, conv_cfg: dict[str, Any] = CIRCULAR, **kwargs: Any) -> None:
        super().__init__(conv_cfg=conv_cfg, **kwargs)

    def forward(self, inputs: Pyramid) -> Tensor:
        """Return logits ``(B, classes, height, width)``, one a pixel.

        Raises:
            VitrailError: the backbone does not say where its features sit.
        """
        features = _placed(inputs)
        logits = super().forward([stage.tokens for stage in features])
        height, width = inputs.size
        pixels = to_pixels(features[self.in_index]._replace(tokens=logits))
        return pixels[:, :, :height, :width]


def _placed(inputs: Any) -> tuple[Features, ...]:
    if not isinstance(inputs, Pyramid):
        raise VitrailError(
            "an adaptive head needs features that say where they sit: use AdaptiveSwin or "
            "AdaptiveSwinV2 for model.backbone, without a neck, or mmseg's own heads for this one"
        )
    return inputs.features
