"""UperNet's heads, truly shift-equivariant (shift, Sec. 4, "Segmentation").

They are mmseg's, with the same parameters, but their convolutions are circular, and where a head
resizes features they are unpooled to the place that the backbone says (`unpooling`).

UperNet's pyramid pooling averages the coarsest features over bins that are fixed to the map: a
shift would move features from bin to bin. The paper does not say how it avoids this. The adaptive
backbones roll the tokens of their first stage to an anchor, so the bins always begin at the same.

Anchors and windows begin at what stands out in an image. In one that repeats itself (tiles,
stripes, halves of one colour) several places do, so there no choice is equivariant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from mmseg.models.decode_heads import FCNHead, UPerHead
from mmseg.registry import MODELS
from torch import Tensor, nn

from vitrail.errors import VitrailError
from vitrail.segmentation.backbones import Pyramid
from vitrail.segmentation.unpooling import to_pixels, unpool
from vitrail.shift.torus import Features

CIRCULAR = {"type": "CircularConv2d"}


@MODELS.register_module()
class AdaptiveUPerHead(UPerHead):
    """mmseg's `UPerHead`, shift-equivariant."""

    def __init__(self, conv_cfg: dict[str, Any] = CIRCULAR, **kwargs: Any) -> None:
        super().__init__(conv_cfg=conv_cfg, **kwargs)

    def forward(self, inputs: Pyramid) -> Tensor:
        """Return logits ``(B, classes, height, width)``, one a pixel.

        Raises VitrailError where the backbone does not say where its features sit.
        """
        features = self._forward_feature(_placed(inputs))
        return _shown(features._replace(tokens=self.cls_seg(features.tokens)), inputs)

    def predict_by_feat(self, seg_logits: Tensor, batch_img_metas: list[dict[str, Any]]) -> Tensor:
        """Return the logits, which need no resizing to the image."""
        return seg_logits

    def _forward_feature(self, inputs: Sequence[Features]) -> Features:
        """Return the fused features, on the grid of the finest stage."""
        stages = self._transform_inputs(inputs)
        finest, coarsest = stages[0], len(stages) - 1
        tokens = [
            conv(stage.tokens) for conv, stage in zip(self.lateral_convs, stages, strict=False)
        ]
        tokens.append(self.psp_forward([stage.tokens for stage in stages]))
        for index in range(coarsest, 0, -1):  # from coarse to fine
            above = stages[index]._replace(tokens=tokens[index])
            below = stages[index - 1]
            tokens[index - 1] = tokens[index - 1] + unpool(above, below.offset, below.stride)

        convs = [*self.fpn_convs, nn.Identity()]
        outputs = [conv(x) for conv, x in zip(convs, tokens, strict=True)]
        for index in range(1, coarsest + 1):
            above = stages[index]._replace(tokens=outputs[index])
            outputs[index] = unpool(above, finest.offset, finest.stride)
        return finest._replace(tokens=self.fpn_bottleneck(torch.cat(outputs, dim=1)))


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
        return _shown(features[self.in_index]._replace(tokens=logits), inputs)


def _placed(inputs: Any) -> tuple[Features, ...]:
    if not isinstance(inputs, Pyramid):
        raise VitrailError(
            "an adaptive head needs features that say where they sit: use AdaptiveSwin or "
            "AdaptiveSwinV2 for model.backbone, without a neck, or mmseg's own heads for this one"
        )
    return inputs.features


def _shown(features: Features, inputs: Pyramid) -> Tensor:
    """Put features on the pixels of the image, without what was padded."""
    height, width = inputs.size
    return to_pixels(features)[:, :, :height, :width]
