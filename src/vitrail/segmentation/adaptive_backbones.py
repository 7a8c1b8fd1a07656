"""Truly shift-equivariant Swin and SwinV2 as backbones of mmseg, of any size.

    backbone = dict(type="AdaptiveSwin", img_size=448, drop_path_rate=0.3, selection="per_stage")

In evaluation, images of any size are padded with zeros, below and to the right, to a size that the
windows divide; the heads remove the padding. Only for images that need no padding is the model
equivariant. In training no image may need it, as it would affect the statistics of batch norms.
"""

from __future__ import annotations

from typing import Any

from mmseg.registry import MODELS
from timm.models import swin_transformer, swin_transformer_v2
from torch import Tensor

from vitrail.segmentation.backbones import Pyramid, TimmStages

# Imported, and not only named, so that the digest of a segmenter's code contains these modules.
from vitrail.shift.swin import a_swin_tiny_patch4_window7_224, a_swinv2_tiny_window8_256


class AdaptiveBackbone(TimmStages):
    """A shift-equivariant model; its stages return their tokens with their positions."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, dynamic_img_pad=True, **kwargs)

    def forward(self, images: Tensor) -> Pyramid:
        """Return the features of each stage of images ``(B, 3, H, W)``.

        Raises VitrailError where H or W does not fit the windows in training.
        """
        size = (images.shape[2], images.shape[3])
        if self.training:
            self.model.require_fit(size)
        stages = self.model.forward_stages(images)
        features = tuple(
            stages[index]._replace(tokens=self.normalise(index, stages[index].tokens))
            for index in self.out_indices
        )
        return Pyramid(features, size)


@MODELS.register_module(name="AdaptiveSwin")
class AdaptiveSwinBackbone(AdaptiveBackbone):
    """A model of `vitrail.shift.swin`, for images of multiples of 224 pixels."""

    default_name = a_swin_tiny_patch4_window7_224.__name__
    filter_fn = staticmethod(swin_transformer.checkpoint_filter_fn)


@MODELS.register_module(name="AdaptiveSwinV2")
class AdaptiveSwinV2Backbone(AdaptiveBackbone):
    """A model of `vitrail.shift.swin`, for images of multiples of 256 pixels."""

    default_name = a_swinv2_tiny_window8_256.__name__
    filter_fn = staticmethod(swin_transformer_v2.checkpoint_filter_fn)
