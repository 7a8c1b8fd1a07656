"""Vision Transformers whose positions can be permuted, as Position-SHAP needs.

To a Vision Transformer the patches are a set, and only its position embeddings say where each of
them is. An additive embedding is a table with a row for each position, so positions are permuted by
gathering the rows of that table in another order, a different one for each image. Rotary and
relative positions, and those of NaFlex, act deeper in the model. There the patches are permuted
instead, after their embedding: with patch n moved to index p[n], token n also has the position of
token p[n], and the embeddings stay as they are. The model itself is not changed.
"""

from __future__ import annotations

from inspect import signature
from typing import Any, Protocol, cast

import torch
from timm.models.beit import Beit
from timm.models.eva import Eva
from timm.models.naflexvit import NaFlexVit
from timm.models.vision_transformer import VisionTransformer
from timm.models.vision_transformer_relpos import VisionTransformerRelPos
from torch import Tensor, nn

from vitrail.errors import VitrailError, did_you_mean

SETS_OF_PATCHES = (VisionTransformer, Eva, VisionTransformerRelPos, Beit)
"""timm's models that, except for position embeddings, see patches as a set after `patch_embed`."""


class Permutable(Protocol):
    """A classifier, in evaluation mode, whose positions can be permuted."""

    @property
    def positions(self) -> int:
        """The number of positions that permute, with that of the class token if it has one."""

    def __call__(self, images: Tensor, permutation: Tensor | None = None, /) -> Tensor:
        """Classify ``(B, 3, H, W)`` with positions permuted by ``(B, N)`` int64: ``(B, classes)``.

        Token n of image b gets the position of token ``permutation[b, n]``; None permutes nothing.
        """


class PermutablePositions(nn.Module):
    """A Vision Transformer as a `Permutable`.

    Class and register tokens permute with the patches if the additive table has rows for them (as
    in the code of P-SHAP's authors). A rotary or relative embedding has no positions for them; if a
    model has both kinds, only the patches' positions permute, equally in both. A model without
    position embeddings ignores the permutation. The parameters of `model` are shared, and its mode
    is taken over.

    Raises:
        VitrailError: the model is of another family.
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = cast(Any, model)
        self.training = model.training
        self.naflex = isinstance(model, NaFlexVit)
        if self.naflex:
            self.patches: Any = self.model.embeds
            size = self.patches.default_img_size or self.model.pretrained_cfg["input_size"][1:]
            self.grid: tuple[int, int] = self.patches.dynamic_feat_size(size)
        elif isinstance(model, SETS_OF_PATCHES) or _has_table_of_planes(model):
            self.patches = self.model.patch_embed
            self.grid = self.patches.grid_size
        else:
            raise VitrailError(
                f"the positions of {type(model).__name__} cannot be permuted: give one of timm's "
                "ViT, EVA, BEiT, relative-position or NaFlex models, an octic or flip model, a "
                "model with 'positions' whose forward takes a permutation, or permutable(model, "
                "table=NAME) with the name of its table of positions, such as "
                "'vit.embeddings.position_embeddings'"
            )
        rotary = getattr(model, "rope", None) is not None
        of_table = isinstance(model, VisionTransformer | Eva) and not rotary
        self.additive = of_table or _has_table_of_planes(model)
        self.positions: int = self.grid[0] * self.grid[1]
        table = getattr(model, "pos_embed", None)
        if self.additive and isinstance(table, Tensor):
            self.positions = table.shape[1]

    def forward(self, images: Tensor, permutation: Tensor | None = None) -> Tensor:
        """Classify; see `Permutable`.

        Raises:
            VitrailError: the images have another grid of patches than the embedding, which a model
                with ``dynamic_img_size`` would interpolate.
        """
        if permutation is None:
            return self.model(images)
        if self.patches.dynamic_feat_size(images.shape[-2:]) != self.grid:
            raise VitrailError(
                f"images of {tuple(images.shape[-2:])} pixels need interpolated positions, which "
                f"cannot be permuted: create the model with img_size={tuple(images.shape[-2:])}"
            )
        if not self.additive:
            module = self.patches.proj if self.naflex else self.patches
            rows = permutation.argsort(dim=1)  # place p[n] gets patch n
        elif isinstance(self.model.pos_embed, nn.Module):
            module, rows = self.model.pos_embed, permutation
        else:
            if self.model.pos_embed is None:
                return self.model(images)
            return _with_rows(self.model, "pos_embed", permutation, images)
        hook = module.register_forward_hook(lambda _module, _args, tokens: _gather(tokens, rows))
        try:
            logits = self.model(images)
        finally:
            hook.remove()
        return logits


class PermutableTable(nn.Module):
    """A Vision Transformer with a table of positions of any name as a `Permutable`.

    All rows of the table permute, those of class tokens included. The logits are what the model
    returns, or the `logits` of it, as Hugging Face's models return them. The parameters of `model`
    are shared, and its mode is taken over.

    Args:
        model: a classifier of images ``(B, 3, H, W)`` that adds the table to its tokens.
        table: the name of the parameter ``(1, N, C)``, as in ``model.named_parameters()``.

    Raises:
        VitrailError: there is no such parameter, or it has another shape.
    """

    def __init__(self, model: nn.Module, table: str):
        super().__init__()
        self.model, self.table = model, table
        self.training = model.training
        shapes = {name: tuple(each.shape) for name, each in model.named_parameters()}
        if table not in shapes:
            raise VitrailError(
                f"in {type(model).__name__} '{table}' is a buffer: make it a parameter, "
                "nn.Parameter(..., requires_grad=False)"
                if table in dict(model.named_buffers())
                else f"{type(model).__name__} has no parameter '{table}'"
                f"{did_you_mean(table, shapes)}"
            )
        shape = shapes[table]
        if len(shape) != 3 or shape[0] != 1:
            raise VitrailError(
                f"the table '{table}' of {type(model).__name__} has shape {shape} instead of "
                "(1, positions, channels), so its rows cannot be permuted for each image: give it "
                "this shape, or give the model `positions` and a `forward(images, permutation)` "
                "(help(vitrail.measures.permutable.Permutable))"
            )
        self.positions: int = shape[1]

    def forward(self, images: Tensor, permutation: Tensor | None = None) -> Tensor:
        """Classify; see `Permutable`."""
        if permutation is None:
            output = self.model(images)
        else:
            output = _with_rows(self.model, self.table, permutation, images)
        return cast(Tensor, output if isinstance(output, Tensor) else output.logits)


def _with_rows(model: nn.Module, table: str, permutation: Tensor, images: Tensor) -> Any:
    """Run a model whose `table` ``(1, N, C)`` has its rows permuted, by ``(B, N)`` for each image.

    The table is replaced by one of each image, ``(B, N, C)``.
    """
    rows = model.get_parameter(table)[0][permutation]
    return torch.func.functional_call(model, {table: rows}, (images,))


def _has_table_of_planes(model: Any) -> bool:
    """Return whether a module makes the table ``(planes, 1, N, c)``, as in octic models."""
    return hasattr(model, "positions") and isinstance(getattr(model, "pos_embed", None), nn.Module)


def _gather(x: Tensor, rows: Tensor) -> Tensor:
    """Reorder the tokens of each image by its row of `rows`.

    Args:
        x: ``(..., B or 1, N, C)``, or a map, ``(B, h, w, C)`` or ``(B, C, h, w)``, of N tokens.
        rows: ``(B, N)`` int64.

    Returns:
        a tensor of the shape of `x`, but of B images.
    """
    count = rows.shape[1]
    if x.shape[-2] == count:
        tokens = x.expand(*x.shape[:-3], len(rows), -1, -1)
        return tokens.take_along_dim(rows.unsqueeze(-1).expand(tokens.shape), -2)
    if x.shape[1] * x.shape[2] == count:
        return _gather(x.flatten(1, 2), rows).reshape(x.shape)
    return _gather(x.flatten(2).mT, rows).mT.reshape(x.shape)


def permutable(model: nn.Module, table: str | None = None) -> Permutable:
    """Return a Vision Transformer as a `Permutable`: itself if its forward takes a permutation.

    A model of Hugging Face's, or any other that adds a table of positions to its tokens::

        permutable(model, table="vit.embeddings.position_embeddings")

    Args:
        model: a classifier in evaluation mode, of timm, of this library or with a `table`.
        table: the name of the parameter ``(1, N, C)`` with a row for each position. None: the model
            is of a family of `PermutablePositions`.

    Raises:
        VitrailError: its positions cannot be permuted, or as `PermutableTable`.
    """
    if table is not None:
        return PermutableTable(model, table)
    takes = hasattr(model, "positions") and "permutation" in signature(model.forward).parameters
    permuting: Any = model if takes else PermutablePositions(model)
    return permuting
