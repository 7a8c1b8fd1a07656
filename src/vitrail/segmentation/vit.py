"""timm's Vision Transformer as a backbone of mmseg, with calibrated position embeddings.

A segmenter learns a table of positions at the size of its crops, and is tested on whole images.
There the table is interpolated, UP(P), and the paper divides it by sqrt(k) (variance, Eq. 4, and
"Semantic Segmentation Scenario"; Table 4): with the constant for one axis if one axis grows, as on
ADE20K and Cityscapes, and with that for both axes if both grow, as on LoveDA. In training nothing
is calibrated.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, cast, get_args

import torch
from mmseg.registry import MODELS
from timm.models.vision_transformer import VisionTransformer, checkpoint_filter_fn
from torch import Tensor, nn
from torch.nn import functional

from vitrail.errors import VitrailError, did_you_mean
from vitrail.segmentation.backbones import TimmBackbone, create
from vitrail.variance.rescaling import Calibration, rescaled_table


class CalibratedViT(VisionTransformer):
    """timm's ViT, whose table of positions is resized and calibrated for each image size."""

    rescaling: dict[str, Any]  # `calibration` or `scale` of `rescaled_table`, in evaluation

    def _pos_embed(self, x: Tensor) -> Tensor:
        """Add positions to patches ``(B, h, w, C)``: ``(B, prefix + h * w, C)``."""
        batch, rows, columns, _ = x.shape
        table = rescaled_table(
            cast(Tensor, self.pos_embed),
            self.patch_embed.grid_size,
            (rows, columns),
            antialias=False,
            **({} if self.training else self.rescaling),
        )
        patches = x.flatten(1, 2)
        if self.no_embed_class:
            patches = patches + table
        prefix = [
            t.expand(batch, -1, -1) for t in (self.cls_token, self.reg_token) if t is not None
        ]
        tokens = torch.cat([*prefix, patches], dim=1)
        return cast(Tensor, self.pos_drop(tokens if self.no_embed_class else tokens + table))


@MODELS.register_module()
class TimmViT(TimmBackbone):
    """A Vision Transformer of timm's, by default DeiT-S/16, for mmseg's ``MultiLevelNeck``.

    Args:
        model_name: timm's, of a plain Vision Transformer, whose other arguments are `kwargs`.
        img_size: of the crops, whose grid the table of positions has.
        out_indices: after which blocks features are taken.
        calibration: of the table in evaluation, where the grid is another: ``none``, ``constant``
            (the paper's constants), ``exact`` (computed for this change of size) or ``empirical``
            (to the table's own variance), see `vitrail.variance.rescaling`.
        pos_std: of the table before training; None is timm's 0.02, which a training of a few
            hundred steps does not leave.
        init_cfg: None, or published weights as in `vitrail.segmentation.weights`.

    Raises:
        VitrailError: the model is no plain Vision Transformer, it refuses an argument, or the
            calibration is unknown.
    """

    # mmseg interpolates the table of positions in this way, for which the paper's constants hold.
    filter_fn = staticmethod(
        functools.partial(checkpoint_filter_fn, interpolation="bicubic", antialias=False)
    )

    def __init__(
        self,
        model_name: str = "deit_small_patch16_224",
        img_size: int | tuple[int, int] = 512,
        out_indices: Sequence[int] = (2, 5, 8, 11),
        calibration: Calibration = "none",
        pos_std: float | None = None,
        init_cfg: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if calibration not in get_args(Calibration):
            known = did_you_mean(calibration, get_args(Calibration))
            raise VitrailError(f"backbone.calibration '{calibration}' is unknown{known}")
        model = create(model_name, img_size=img_size, **kwargs)
        if type(model) is not VisionTransformer or model.pos_embed is None:
            raise VitrailError(
                f"backbone.model_name '{model_name}' is no Vision Transformer with a table of "
                "positions; use one such as deit_small_patch16_224"
            )
        super().__init__(model, out_indices, init_cfg)
        self.model.__class__ = CalibratedViT
        self.model.rescaling = {"calibration": calibration}
        if pos_std is not None:
            nn.init.trunc_normal_(model.pos_embed, std=pos_std)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return the features of each of the blocks, ``(B, C, h, w)``, of images ``(B, 3, H, W)``.

        Images are padded with zeros to whole patches, below and to the right, as mmseg's are.
        """
        rows, columns = self.model.patch_embed.patch_size
        padding = (0, -images.shape[3] % columns, 0, -images.shape[2] % rows)
        return super().forward(functional.pad(images, padding))
