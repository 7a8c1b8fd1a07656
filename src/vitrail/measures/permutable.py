"""Vision Transformers of timm whose positions can be permuted, as Position-SHAP asks.

The one idea: what a token knows of its place comes from a table with a row for each place, so to
permute positions is to gather that table's rows, a set of rows for each image. An additive table
takes the place of the parameter ``pos_embed`` during the call, a rotary one that of the angles
which every block is handed. The model itself is not changed.
"""

from __future__ import annotations

from inspect import signature
from typing import Any, Protocol

import torch
from timm.models.eva import Eva
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from vitrail.errors import VitrailError


class Permutable(Protocol):
    """A classifier, in evaluation mode, whose positions can be permuted."""

    @property
    def positions(self) -> int:
        """How many positions permute, the class token's included if it has one."""

    def __call__(self, images: Tensor, permutation: Tensor | None = None, /) -> Tensor:
        """Classify ``(B, 3, H, W)`` with positions permuted by ``(B, N)`` int64: ``(B, classes)``.

        Token n of image b gets the position of token ``permutation[b, n]``; None permutes nothing.
        """


class PermutablePositions(nn.Module):
    """A timm ViT with additive or rotary position embeddings, as a `Permutable`.

    Class and register tokens permute with the patches where the additive table has rows for them
    (as the authors of P-SHAP do). A rotary embedding has no place for them; where a model has both
    kinds, only the patches' positions permute, in both alike. A model without position embeddings
    ignores the permutation. The parameters of `model` are shared, and its mode is taken over.

    Raises:
        VitrailError: the model is of another family.
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        if not isinstance(model, VisionTransformer | Eva):
            raise VitrailError(
                f"the positions of a {type(model).__name__} cannot be permuted: give one of timm's "
                "VisionTransformer or Eva models, or a model with 'positions' whose forward takes "
                "a permutation"
            )
        self.model: Any = model
        self.training = model.training
        self.rotary = getattr(model, "rope", None) is not None
        self.positions: int = (
            model.patch_embed.num_patches
            if self.rotary or model.pos_embed is None
            else len(model.pos_embed[0])
        )

    def forward(self, images: Tensor, permutation: Tensor | None = None) -> Tensor:
        """Classify; see `Permutable`.

        Raises:
            VitrailError: the images have other places than the embedding, which the model, with
                ``dynamic_img_size``, would interpolate.
        """
        if permutation is None:
            return self.model(images)
        patches = self.model.patch_embed
        if patches.dynamic_feat_size(images.shape[-2:]) != patches.grid_size:
            raise VitrailError(
                f"images of {tuple(images.shape[-2:])} pixels need interpolated positions, which "
                f"cannot be permuted: create the model with img_size={tuple(images.shape[-2:])}"
            )
        replaced = {}
        if self.model.pos_embed is not None:
            table = self.model.pos_embed[0]  # (rows, C)
            kept = len(table) - self.positions
            first = torch.arange(kept, device=permutation.device).expand(len(permutation), kept)
            replaced["pos_embed"] = table[torch.cat([first, permutation + kept], dim=1)]

        def gather_angles(_block: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
            angles = kwargs["rope"]  # (N, D) for all heads, or (heads, N, D)
            angles = angles[None] if angles.ndim == 2 else angles
            return args, kwargs | {"rope": angles[:, permutation].transpose(0, 1)}  # (B, heads, ..)

        hooks = [
            block.register_forward_pre_hook(gather_angles, with_kwargs=True)
            for block in (self.model.blocks if self.rotary else ())
        ]
        try:
            return torch.func.functional_call(self.model, replaced, (images,))
        finally:
            for hook in hooks:
                hook.remove()


def permutable(model: nn.Module) -> Permutable:
    """Return the model itself if its forward takes a permutation, else `PermutablePositions` of it.

    Raises:
        VitrailError: its positions cannot be permuted.
    """
    takes = hasattr(model, "positions") and "permutation" in signature(model.forward).parameters
    permuting: Any = model if takes else PermutablePositions(model)
    return permuting
