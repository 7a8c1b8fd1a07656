"""timm's ViT as DINOv2 has it: with a mask token, and positions for images of any size.

DINOv2 resamples its positions by bicubic interpolation without antialiasing, and adds an offset of
0.1 patches to the size of the new grid; timm antialiases. Octic models have a mask token of their
own (`vitrail.octic.vit`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import torch
from timm.models import generate_default_cfgs, register_model
from timm.models.vision_transformer import VisionTransformer, checkpoint_filter_fn
from torch import Tensor, nn
from torch.nn import functional

from vitrail.octic.shapes import TIMM_CFG, build

OFFSET = 0.1
TIMM_STD = 0.02


_Timms: Any = VisionTransformer  # as Any: its methods take attention masks where ours take `mask`


class MaskedVisionTransformer(_Timms):
    """timm's ViT with an optional `mask_token`, whose initial value is zero.

    `init_std` is the initial standard deviation of the position embedding and of the linear layers'
    weights. With timm's 0.02 small models learn slowly at the start.
    """

    mask_token: Any

    def __init__(self, mask_token: bool = False, init_std: float = TIMM_STD, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        width = self.embed_dim
        self.mask_token = nn.Parameter(torch.zeros(1, 1, width)) if mask_token else None
        linear = [module.weight for module in self.modules() if isinstance(module, nn.Linear)]
        with torch.no_grad():
            torch._foreach_mul_([self.pos_embed, *linear], init_std / TIMM_STD)

    def forward_features(self, images: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the normalised tokens ``(B, 1 + h w, C)`` of images ``(B, I, H, W)``.

        `mask`, ``(B, h w)`` bool, is true where the mask token takes a patch's place.
        """
        x = self.patch_embed(images)
        if mask is not None:
            x = torch.where(mask.view(*x.shape[:-1], 1), self.mask_token.to(x), x)
        x = self._pos_embed(x)
        if self.grad_checkpointing and self.training:
            for block in self.blocks:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        else:
            x = self.blocks(x)
        return self.norm(x)

    def forward(self, images: Tensor) -> Tensor:
        """Return the features ``(B, C)``, or logits if there are classes."""
        features: Tensor = self.forward_head(self.forward_features(images))
        return features

    def _pos_embed(self, x: Tensor) -> Tensor:
        """Put the class token before patches ``(B, h, w, C)``, or ``(B, N, C)``; add positions."""
        positions = self.pos_embed
        if self.dynamic_img_size:
            positions = self.positions((x.shape[1], x.shape[2]))
            x = x.flatten(1, 2)
        return torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + positions

    def positions(self, grid: tuple[int, int]) -> Tensor:
        """Return the position encoding ``(1, 1 + h w, C)`` of a grid of patches."""
        height, width = self.patch_embed.grid_size
        if grid == (height, width):
            return cast(Tensor, self.pos_embed)
        table = self.pos_embed[:, 1:].unflatten(1, (height, width)).permute(0, 3, 1, 2)
        scale = ((grid[0] + OFFSET) / height, (grid[1] + OFFSET) / width)
        resampled = functional.interpolate(table.float(), scale_factor=scale, mode="bicubic")
        return torch.cat([self.pos_embed[:, :1], resampled.flatten(2).mT.to(table)], dim=1)


def backbone_filter_fn(state: Mapping[str, Tensor], model: Any) -> dict[str, Tensor]:
    """Adapt weights to a model as timm does, also weights that DINOv2's code has saved.

    DINOv2's code saves a mask token, puts "backbone." before names, and may number the blocks in
    chunks ("blocks.1.7.").
    """
    own = {
        re.sub(r"^(backbone\.)?(blocks\.)?(\d+\.(?=\d))?", r"\2", name): value
        for name, value in state.items()
        if not name.startswith(("dino_head.", "ibot_head."))
    }
    token = own.pop("mask_token", None)  # timm knows DINOv2's weights by it, and drops it
    fitted: dict[str, Tensor] = checkpoint_filter_fn(own, model)
    if token is not None and model.mask_token is not None:
        fitted["mask_token"] = token.view(1, 1, -1)
    return fitted


_MASKED = [f"masked_vit_{shape}_224" for shape in ("large_patch16", "huge_patch16")]
default_cfgs = generate_default_cfgs(dict.fromkeys(_MASKED, TIMM_CFG))


def _masked_vit(shape: str, pretrained: bool, **kwargs: Any) -> nn.Module:
    name, options = f"masked_vit_{shape}_224", {"pretrained_filter_fn": backbone_filter_fn}
    return build(MaskedVisionTransformer, name, shape, pretrained, options, **kwargs)


@register_model
def masked_vit_large_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """ViT-L/16 with a mask token."""
    return _masked_vit("large_patch16", pretrained, **kwargs)


@register_model
def masked_vit_huge_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """ViT-H/16 with a mask token."""
    return _masked_vit("huge_patch16", pretrained, **kwargs)
