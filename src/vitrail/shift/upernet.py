"""UperNet (Xiao et al., 2018), plain or truly shift-equivariant (shift, Sec. 4, "Segmentation").

How features are put back, in one file: examples/adaptive_unpooling_in_one_file.py.

    backbone = timm.create_model("a_swin_tiny_patch4_window7_224", dynamic_img_size=True)
    model = UPerNet(backbone, num_classes=150)

The plain decoder is MMSegmentation's UPerHead. The adaptive decoder has the same parameters. Its
convolutions are circular, and it resizes features by unpooling them to the places that the backbone
records (`geometry`).

UperNet's pyramid pooling averages the coarsest features over bins that are fixed to the map: a
shift would move features from bin to bin. The paper does not say how it avoids this. The adaptive
backbones roll the tokens of their first stage to an anchor, so the bins begin at the same token for
all shifts of an image.

The energies of the tokens determine where anchors and windows begin. In an image that repeats
itself (tiles, stripes, halves of one colour) several places have equal energies, and no choice
between them is equivariant.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, cast, get_args

import torch
from timm.layers import LayerNorm2d
from torch import Tensor, nn
from torch.nn import functional

from vitrail.errors import VitrailError, require_known
from vitrail.shift.features import StageModel
from vitrail.shift.geometry import Features, Mode, Size, to_pixels, unpool, zero_offsets

Layer = Callable[..., nn.Module]
CIRCULAR: Layer = partial(nn.Conv2d, padding_mode="circular")


class ConvUnit(nn.Sequential):
    """A convolution that keeps the size of a map, a norm and an activation, named as in mmcv."""

    conv: nn.Conv2d

    def __init__(
        self, inputs: int, outputs: int, kernel: int, conv: Layer, norm: Layer, act: Layer
    ) -> None:
        conv_layer = conv(inputs, outputs, kernel, padding=kernel // 2, bias=False)
        layers = {"conv": conv_layer, "bn": norm(outputs), "activate": act()}
        super().__init__(OrderedDict(layers))
        self.init_weights()

    def init_weights(self) -> None:
        """Draw the weights of the convolution (He et al., 2015); mmengine calls it by this name."""
        nn.init.kaiming_normal_(self.conv.weight, mode="fan_out", nonlinearity="relu")


class UPerNetDecoder(nn.Module):
    """UperNet's decoder; its parameters are named as those of MMSegmentation's UPerHead.

    Args:
        widths: number of channels of each stage, from fine to coarse.
        channels: number of channels of the decoder.
        num_classes: number of classes; with 0 the decoder returns features, as timm's models do.
        bins: the pyramid pooling averages the coarsest map over n x n bins for each n of these.
        dropout: probability that a channel is dropped before the last layer, in training.
        conv_layer: makes a convolution from channels and kernel, by keywords padding and bias.
        norm_layer: makes a norm from channels.
        act_layer: makes an activation.
    """

    def __init__(
        self,
        widths: Sequence[int],
        channels: int = 512,
        num_classes: int = 150,
        bins: Sequence[int] = (1, 2, 3, 6),
        dropout: float = 0.1,
        conv_layer: Layer = nn.Conv2d,
        norm_layer: Layer = nn.BatchNorm2d,
        act_layer: Layer = nn.ReLU,
    ) -> None:
        super().__init__()
        unit = partial(ConvUnit, conv=conv_layer, norm=norm_layer, act=act_layer)
        *finer, coarsest = widths
        self.conv_seg = nn.Conv2d(channels, num_classes, 1) if num_classes else nn.Identity()
        self.dropout: nn.Module = nn.Dropout2d(dropout)
        pooled = (nn.Sequential(nn.AdaptiveAvgPool2d(n), unit(coarsest, channels, 1)) for n in bins)
        self.psp_modules = nn.ModuleList(pooled)
        self.bottleneck = unit(coarsest + len(bins) * channels, channels, 3)
        self.lateral_convs, self.fpn_convs = nn.ModuleList(), nn.ModuleList()
        for width in finer:
            self.lateral_convs.append(unit(width, channels, 1))
            self.fpn_convs.append(unit(channels, channels, 3))
        self.fpn_bottleneck = unit(len(widths) * channels, channels, 3)

    def forward(self, stages: Sequence[Features], size: Size) -> Tensor:
        """Return logits ``(B, classes, *size)`` from the stages of images, fine to coarse."""
        laterals = zip(self.lateral_convs, stages, strict=False)
        tokens = [lateral(stage.tokens) for lateral, stage in laterals]
        tokens.append(self.pool(stages[-1].tokens))
        for index in range(len(stages) - 1, 0, -1):  # from coarse to fine
            above, below = stages[index]._replace(tokens=tokens[index]), stages[index - 1]
            tokens[index - 1] = tokens[index - 1] + self.upsample(above, below)

        convs = [*self.fpn_convs, nn.Identity()]
        outputs = [conv(x) for conv, x in zip(convs, tokens, strict=True)]
        for index in range(1, len(stages)):
            above = stages[index]._replace(tokens=outputs[index])
            outputs[index] = self.upsample(above, stages[0])
        fused = self.fpn_bottleneck(torch.cat(outputs, dim=1))
        logits = self.conv_seg(self.dropout(fused))
        return self.put_on_pixels(stages[0]._replace(tokens=logits), size)

    def pool(self, x: Tensor) -> Tensor:
        """Concatenate the coarsest map ``(B, C, H, W)`` and its means over bins, and convolve."""
        means = [_interpolated(pool(x), x.shape[2:]) for pool in self.psp_modules]
        return cast(Tensor, self.bottleneck(torch.cat([x, *means], dim=1)))

    def upsample(self, features: Features, target: Features) -> Tensor:
        """Return features ``(B, C, H, W)`` on the grid of a finer stage."""
        return _interpolated(features.tokens, target.tokens.shape[2:])

    def put_on_pixels(self, features: Features, size: Size) -> Tensor:
        """Return features ``(B, C, H, W)`` on the pixels of images of `size`."""
        return _interpolated(features.tokens, size)


class AdaptiveUPerNetDecoder(UPerNetDecoder):
    """UperNet's decoder, shift-equivariant.

    Stages may cover more than the image, below and to the right.

    Source: shift, Sec. 4, Sec. 5.5.

    Args:
        args: arguments of `UPerNetDecoder`.
        upsampling: the values between features that are put on a finer stage: "bilinear"
            interpolates, as UperNet does, "zero_insert" leaves zeros (shift, Sec. A2.2). Logits are
            always interpolated to the pixels, because otherwise 15 of 16 pixels would have none.
        kwargs: keyword arguments of `UPerNetDecoder`.

    Raises:
        VitrailError: `upsampling` is unknown.
    """

    def __init__(self, *args: Any, upsampling: Mode = "bilinear", **kwargs: Any) -> None:
        require_known("upsampling", upsampling, get_args(Mode))
        super().__init__(*args, **{"conv_layer": CIRCULAR, **kwargs})
        self.upsampling = upsampling

    def upsample(self, features: Features, target: Features) -> Tensor:
        """Unpool features ``(B, C, H, W)`` to the places of a finer stage."""
        return unpool(features, target.offset, target.stride, self.upsampling)

    def put_on_pixels(self, features: Features, size: Size) -> Tensor:
        """Unpool features ``(B, C, H, W)`` to the pixels of images of `size`."""
        return to_pixels(features)[:, :, : size[0], : size[1]]


class UPerNet(nn.Module):
    """A segmenter: a backbone of timm's, a norm for each of its stages, and UperNet's decoder.

    The logits of A-Swin and A-SwinV2 shift with the image. Parameters are named as those of the
    same segmenter in MMSegmentation (`vitrail.segmentation`), except its auxiliary head.

    Args:
        backbone: model with ``feature_info`` and ``forward_intermediates``; its head is removed.
        num_classes: number of classes.
        options: options of `UPerNetDecoder`, or of `AdaptiveUPerNetDecoder` if the backbone is
            adaptive.

    Raises:
        VitrailError: the backbone was made with ``features_only``, or the decoder refuses an
            option.
    """

    def __init__(self, backbone: Any, num_classes: int, **options: Any) -> None:
        super().__init__()
        if not hasattr(backbone, "prune_intermediate_layers"):
            raise VitrailError(
                f"UPerNet takes no {type(backbone).__name__}: give the model of timm's itself, "
                "made without features_only"
            )
        widths = [stage["num_chs"] for stage in backbone.feature_info]
        backbone.prune_intermediate_layers(len(widths), prune_norm=True)
        norms = {f"norm{index}": stage_norm(width) for index, width in enumerate(widths)}
        self.backbone = nn.ModuleDict({"model": backbone, **norms})
        decoder = AdaptiveUPerNetDecoder if isinstance(backbone, StageModel) else UPerNetDecoder
        self.decode_head = decoder(widths, num_classes=num_classes, **options)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits ``(B, classes, H, W)`` of images ``(B, 3, H, W)``.

        Raises:
            VitrailError: the windows of an adaptive backbone do not divide H and W.
        """
        model: Any = self.backbone["model"]
        if isinstance(model, StageModel):
            return self.decode(model.forward_stages(images), images)
        return self.decode_maps(
            model.forward_intermediates(images, intermediates_only=True), images
        )

    def decode_maps(self, maps: Sequence[Tensor], images: Tensor) -> Tensor:
        """Return the logits of images from the maps ``(B, C, h, w)`` of a plain backbone."""
        model: Any = self.backbone["model"]
        strides = [stage["reduction"] for stage in model.feature_info]
        origin = zero_offsets(images)
        placed = (Features(x, origin, stride) for x, stride in zip(maps, strides, strict=True))
        return self.decode(placed, images)

    def decode(self, stages: Iterable[Features], images: Tensor) -> Tensor:
        """Return the logits ``(B, classes, H, W)`` of images from the features of a backbone."""
        normed = [
            stage._replace(tokens=self.backbone[f"norm{index}"](stage.tokens))
            for index, stage in enumerate(stages)
        ]
        logits: Tensor = self.decode_head(normed, (images.shape[2], images.shape[3]))
        return logits


def stage_norm(width: int) -> nn.Module:
    """Return the norm of a stage's output ``(B, width, H, W)``, as in MMSegmentation's Swin."""
    return cast(nn.Module, LayerNorm2d(width, eps=1e-5))


def _interpolated(x: Tensor, size: Sequence[int]) -> Tensor:
    return functional.interpolate(x, tuple(size), mode="bilinear", align_corners=False)
