"""Octic Vision Transformers (octic, Sec. 3.2): families D8, H8, I8, and the class that they share.

The patch embedding makes octic features, and the first k blocks keep them octic. In the family D8
all blocks are octic, and invariants of the class token are classified. In H8 and I8 k is half the
depth, and standard blocks follow: those of H8 see the planes as plain channels, those of I8 see
invariants of every token. Models of D8 and I8 are invariant to quarter turns and mirrorings, those
of H8 are not.

    model = timm.create_model("octic_d8_vit_large_patch16_224", invariant="polynomial")

`vitrail.octic` says which other file has which equation. Example of use: examples/octic.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Literal, get_args

import torch
from timm.layers import LayerNorm, global_pool_nlc, to_2tuple
from timm.models import (
    checkpoint,
    generate_default_cfgs,
    register_model,
    register_notrace_module,
)
from timm.models._input import update_model_input_size
from timm.models._manipulate import adapt_input_conv
from timm.models.vision_transformer import Block
from torch import Tensor, nn

from vitrail.errors import VitrailError, require_known
from vitrail.intermediates import Intermediates
from vitrail.octic.checkpoint import load_published
from vitrail.octic.embeddings import (
    TOKEN_STD,
    ArbitraryPatchEmbed,
    OcticPatchEmbed,
    OcticPositionEmbedding,
    SteerablePatchEmbed,
    SteerablePositionEmbedding,
    require_even,
)
from vitrail.octic.fast_block import FastBlock
from vitrail.octic.group import to_channels
from vitrail.octic.invariants import INVARIANTS, Invariant
from vitrail.octic.layers import NormConvention, OcticLayerNorm, SteerableBlock, pad_to_a1
from vitrail.octic.shapes import CFG, TRAINED, WIDEST, build

# Each is one node of a graph that `torch.fx` traces, as its forward depends on values of features.
for _layer in (
    ArbitraryPatchEmbed,
    Invariant,
    OcticLayerNorm,
    SteerableBlock,
    SteerablePatchEmbed,
    SteerablePositionEmbedding,
):
    register_notrace_module(_layer)
torch.fx.wrap("pad_to_a1")

Family = Literal["d8", "h8", "i8"]
Pool = Literal["token", "avg", ""]

EPS = {"total": 1e-6, "published": 1e-5}
"""The eps of the octic layer norms, by convention."""


class SteerableVisionTransformer(Intermediates):
    """A ViT whose first k blocks keep features ``(planes, B, N, c)`` that a group acts on.

    CLS, register and mask tokens have parameters for the first plane only, on which the group acts
    trivially; their other planes are zero. CLS and register tokens are put before the patches after
    the position encoding is added. A subclass names the group's layers. Arguments that are not
    listed are those of timm's ViT.

    Args:
        equivariant: whether all blocks are equivariant; then the head takes invariants, see
            `forward_head`.
        invariantise: maps C to the layer that turns features into invariants; with None the planes
            become plain channels.
        patch_layer: the patch embedding, by default `patch_embed_layer`.
        norm_layer: the layer norm, by default that of `block_layer`.
        octic_depth: k, by default the depth if `equivariant`, else half of it.
        img_size: side of the square images, an even number of patches.
        patch_size: even.
        embed_dim: C, channels of all planes together.
        init_values: initial values of the layer scale (1e-4 in DeiT III, 1e-5 in DINOv2); 0 for
            no layer scale.
        class_token: whether there is a CLS token; without it `global_pool` must not be "token".
        mask_token: whether there is a mask token, for masked images.
        drop_path_rate: stochastic depth, the same in every block as DeiT III has it.
        init_std: initial standard deviation of the linear layers' weights; with 0.02 small models
            learn slowly at the start.
        cls_std: initial standard deviation of the CLS token; 1e-6 in DINOv2.
        device: device of the model, by default torch's default device.
        dtype: dtype of the parameters, by default torch's default dtype, in which the initial
            values are drawn in any case.

    Raises:
        VitrailError: an argument is impossible.
    """

    block_layer: Any
    patch_embed_layer: Callable[..., nn.Module]
    pos_embed_layer: Callable[..., nn.Module]
    patch_embed: Any
    pos_embed: Any

    def __init__(
        self,
        equivariant: bool,
        invariantise: Callable[[int], Invariant] | None,
        patch_layer: Callable[..., nn.Module] | None = None,
        norm_layer: Callable[[int], nn.Module] | None = None,
        octic_depth: int | None = None,
        img_size: int | tuple[int, int] = 224,
        patch_size: int = 16,
        in_chans: int = 3,
        num_classes: int = 1000,
        global_pool: Pool = "token",
        embed_dim: int = 768,
        depth: int = 12,
        num_heads: int = 12,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        init_values: float = 1e-4,
        class_token: bool = True,
        reg_tokens: int = 0,
        mask_token: bool = False,
        dynamic_img_size: bool = False,
        drop_rate: float = 0.0,
        proj_drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        init_std: float = 0.02,
        cls_std: float = TOKEN_STD,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        least, usual = (depth, depth) if equivariant else (0, depth // 2)
        octic_depth = usual if octic_depth is None else octic_depth
        if not least <= octic_depth <= depth:
            allowed = f"{depth}" if equivariant else f"0 to {depth}"
            raise VitrailError(
                f"octic_depth {octic_depth} does not suit the family's depth; give {allowed}"
            )
        side = _square_side(img_size, patch_size)
        self.octic_depth, self.equivariant = octic_depth, equivariant
        self.planes: int = self.block_layer.attn_layer.planes
        self.num_features = self.head_hidden_size = self.embed_dim = embed_dim
        self.num_reg_tokens, self.num_prefix_tokens = reg_tokens, int(class_token) + reg_tokens
        self.in_chans = in_chans
        self.patch_size, self.grid_size = patch_size, 2 * (side // patch_size,)
        self.dynamic_img_size, self.grad_checkpointing = dynamic_img_size, False
        self.feature_info = [
            {"module": f"blocks.{index}", "num_chs": embed_dim, "reduction": patch_size}
            for index in range(depth)
        ]

        with torch.get_default_device() if device is None else torch.device(device):
            patch_layer = patch_layer or self.patch_embed_layer
            self.patch_embed = patch_layer(side, patch_size, in_chans, embed_dim)
            if isinstance(self.patch_embed, SteerablePatchEmbed):
                # timm cannot adapt its filters to other channels.
                self._traits = {"first_conv": None}
            self.pos_embed = self.pos_embed_layer(self.grid_size[0], embed_dim)
            channels = embed_dim // self.planes

            def token(count: int) -> nn.Parameter | None:
                return nn.Parameter(torch.empty(1, count, channels)) if count else None

            self.cls_token, self.reg_token = token(int(class_token)), token(reg_tokens)
            self.mask_token = token(int(mask_token))

            norm_layer = norm_layer or self.block_layer.norm_layer
            steerable: Callable[..., nn.Module] = partial(self.block_layer, norm_layer=norm_layer)
            self.blocks = nn.ModuleList(
                (steerable if index < octic_depth else Block)(
                    embed_dim,
                    num_heads,
                    mlp_ratio=mlp_ratio,
                    qkv_bias=qkv_bias,
                    init_values=init_values,
                    proj_drop=proj_drop_rate,
                    attn_drop=attn_drop_rate,
                    drop_path=drop_path_rate,
                )
                for index in range(depth)
            )
            self.norm = norm_layer(embed_dim) if equivariant else LayerNorm(embed_dim)
            self.invariantisation = invariantise(embed_dim) if invariantise else None
            if equivariant and self.invariantisation is not None:
                self.head_hidden_size = self.invariantisation.out_features
            self.head_drop = nn.Dropout(drop_rate)
            self.reset_classifier(num_classes, global_pool)
            self._initialise(init_std, cls_std)
        self.to(dtype=dtype)

    def _initialise(self, std: float, cls_std: float) -> None:
        linear_layers = (nn.Linear, self.block_layer.attn_layer.linear_layer)
        for module in self.modules():
            if isinstance(module, linear_layers):
                for parameter in module.parameters(recurse=False):
                    if parameter.ndim == 1:
                        nn.init.zeros_(parameter)
                    else:
                        nn.init.trunc_normal_(parameter, std=std)
        if self.cls_token is not None:
            nn.init.trunc_normal_(self.cls_token, std=cls_std)
        if self.reg_token is not None:
            nn.init.normal_(self.reg_token, std=1e-6)
        if self.mask_token is not None:
            nn.init.zeros_(self.mask_token)

    @property
    def positions(self) -> int:
        """Return the number of positions that a permutation permutes: those of the patches."""
        return self.grid_size[0] * self.grid_size[1]

    def no_weight_decay(self) -> set[str]:
        """Return the names of parameters without weight decay.

        They are the positions, the CLS and register tokens, the references of invariants, and all
        parameters of norms and layer scales. timm exempts parameters of one axis by itself, but the
        scales of equivariant layers have two axes.
        """
        names, parts = dict(self.named_parameters()), (".norm", ".ls", ".invariant.")
        exempt = {name for name in names if any(part in f".{name}" for part in parts)}
        return exempt | {"pos_embed.weight", "cls_token", "reg_token"}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Say which layer each parameter belongs to, as timm's ViT does: stem, blocks, then head.

        An invariantisation belongs to the block whose input it makes, or to the head.
        """
        stem = "^(?:cls_token|reg_token|mask_token|pos_embed|patch_embed)"
        blocks: list[tuple[str, Any]] = [(r"^blocks\.(\d+)", None), ("^norm", (99999,))]
        if not self.equivariant:
            first_standard = min(self.octic_depth, len(self.blocks) - 1)
            blocks.append(("^invariantisation", (first_standard,)))
        return {"stem": stem, "blocks": blocks}

    def set_input_size(self, img_size: int | tuple[int, int]) -> None:
        """Change the size of the images in pixels, and resample the position encoding to it.

        Raises:
            VitrailError: `img_size` is no square of an even number of patches.
        """
        side = _square_side(img_size, self.patch_size)
        self.pos_embed.set_grid(side // self.patch_size)
        self.patch_embed.set_input_size((side, side))
        self.grid_size = (side // self.patch_size, side // self.patch_size)
        update_model_input_size(self, (side, side))

    def prune_intermediate_layers(
        self, indices: int | list[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Drop blocks, norm and head as `Intermediates` does.

        An equivariant family loses with its head the invariants that the head takes.
        """
        if prune_head and self.equivariant:
            self.invariantisation, self.head_hidden_size = None, self.embed_dim
        return super().prune_intermediate_layers(indices, prune_norm, prune_head)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute the blocks' activations in the backward pass, or keep them."""
        self.grad_checkpointing = enable

    def get_classifier(self) -> nn.Module:
        """Return the last layer."""
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: Pool | None = None) -> None:
        """Give the model a new last layer, and another pooling if `global_pool` is given.

        Raises:
            VitrailError: there is no such pooling, or "token" is asked of a model without a class
                token.
        """
        if global_pool is not None:
            require_known("global_pool", global_pool, get_args(Pool))
            if global_pool == "token" and self.cls_token is None:
                raise VitrailError(
                    "a model with class_token=False has no token to classify at "
                    'global_pool="token"; give global_pool="avg"'
                )
            self.global_pool = global_pool
        self.num_classes = num_classes
        head = nn.Linear(self.head_hidden_size, num_classes) if num_classes else nn.Identity()
        self.head = head.to(self.pos_embed.weight)

    def _break_symmetry(self, x: Tensor) -> Tensor:
        """Turn features ``(planes, B, N, c)`` into what standard blocks take, ``(B, N, C)``."""
        return to_channels(x) if self.invariantisation is None else self.invariantisation(x)

    def _grid(self, images: Tensor) -> tuple[int, int]:
        """Return the rows and columns of patches of `images`; raises as `_grid_of`."""
        side = None if self.dynamic_img_size else self.grid_size[0] * self.patch_size
        return _grid_of(images, self.patch_size, side)

    def embed(self, images: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the features of images before the first block: prefix tokens and patches.

        The P prefix tokens are the CLS token, if there is one, and the register tokens. Positions
        are added to the patches.

        Args:
            images: ``(B, I, H, W)``.
            mask: ``(B, h w)`` bool, true where the mask token takes a patch's place.

        Returns:
            ``(planes, B, P + h w, c)``.

        Raises:
            VitrailError: the model does not take images of this size, or has no mask token.
        """
        grid = self._grid(images)
        x = self.patch_embed(images)
        if mask is not None:
            if self.mask_token is None:
                raise VitrailError("the model has no mask token; build it with mask_token=True")
            token = pad_to_a1(self.mask_token, self.planes).to(x)
            x = torch.where(mask.unsqueeze(-1), token, x)
        x = x + self.pos_embed(grid)
        tokens: list[Tensor] = [t for t in (self.cls_token, self.reg_token) if t is not None]
        if tokens:
            prefix = pad_to_a1(torch.cat(tokens, dim=1), self.planes).to(x)
            x = torch.cat([prefix.expand(-1, x.shape[1], -1, -1), x], dim=2)
        return x.contiguous()

    def _outputs(self, images: Tensor, mask: Tensor | None = None) -> Iterator[Tensor]:
        """Yield each block's output: ``(planes, B, N, c)``, or ``(B, N, C)`` if it is standard."""
        x = self.embed(images, mask)
        for index, block in enumerate(self.blocks):
            if index == self.octic_depth:
                x = self._break_symmetry(x)
            x = checkpoint(block, x) if self.grad_checkpointing and self.training else block(x)
            yield x

    def _tokens(self, x: Tensor, norm: bool) -> Tensor:
        """Return the tokens ``(B, N, C)`` of an output of `_outputs`, normalised if `norm`."""
        if x.ndim == 4 and not self.equivariant:
            x = self._break_symmetry(x)
        return self._normalised(x, norm)

    def _normalised(self, x: Tensor, norm: bool) -> Tensor:
        """Return the tokens ``(B, N, C)`` of the last block's output, normalised if `norm`.

        The output is ``(planes, B, N, c)`` in an equivariant family, otherwise ``(B, N, C)``.
        """
        x = self.norm(x) if norm else x
        return to_channels(x) if self.equivariant else x

    def forward_features(self, images: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the normalised tokens ``(B, P + h w, C)`` of images ``(B, I, H, W)``.

        P is the number of prefix tokens (class token and registers). The tokens of an equivariant
        family still turn with the images; their channels are ordered plane by plane. `mask` is as
        in `embed`.
        """
        for x in self._outputs(images, mask):
            last = x
        if not self.equivariant and len(self.blocks) <= self.octic_depth:
            last = self._break_symmetry(last)
        return self._normalised(last, norm=True)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Return the logits of tokens ``(B, N, C)``, or with `pre_logits` the last layer's input.

        In an equivariant family the tokens are pooled before their invariants are computed; the
        paper computes the invariants of all tokens and then takes the CLS token (Sec. 3.3.3). For
        the CLS token the result is the same, since each token has its own invariants. With
        ``global_pool="avg"`` it is not: these are invariants of the mean, not means of invariants.
        """
        x = global_pool_nlc(x, self.global_pool, self.num_prefix_tokens)
        if self.equivariant and self.invariantisation is not None:
            x = self.invariantisation(x.unflatten(-1, (self.planes, -1)).movedim(-2, 0))
        x = self.head_drop(x)
        return x if pre_logits else self.head(x)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits ``(B, classes)`` of images ``(B, I, H, W)``."""
        return self.forward_head(self.forward_features(images))


@torch.fx.wrap
def _grid_of(images: Tensor, patch: int, side: int | None) -> tuple[int, int]:
    """Return the rows and columns of patches of images; `side` is the required side, if any.

    Raises:
        VitrailError: a side is no even number of patches, or not `side`.
    """
    height, width = images.shape[2:]
    if side is not None and (height, width) != (side, side):
        raise VitrailError(
            f"the model takes images of {side} x {side} pixels, not {height} x {width}; "
            "build it with another img_size, or with dynamic_img_size=True"
        )
    if height % patch or width % patch:
        raise VitrailError(
            f"an image of {height} x {width} pixels has no whole number of {patch}-pixel "
            f"patches; give sides that are multiples of {2 * patch}"
        )
    grid = (height // patch, width // patch)
    require_even(grid, patch)
    return grid


def _square_side(img_size: int | tuple[int, int], patch_size: int) -> int:
    """Return the side in pixels of square images.

    Raises:
        VitrailError: `img_size` is not square, or no multiple of `patch_size`.
    """
    height, width = to_2tuple(img_size)
    if height != width or height % patch_size:
        raise VitrailError(
            f"img_size {img_size} is no square of {patch_size}-pixel patches; "
            f"give one number, a multiple of {2 * patch_size}"
        )
    return int(height)


def checkpoint_filter_fn(
    state_dict: Mapping[str, Tensor], model: SteerableVisionTransformer
) -> dict[str, Tensor]:
    """Adapt weights for another image size or number of channels to a model, as timm does a ViT's.

    Weights that the paper's authors published must be of the model's own size.

    Raises:
        VitrailError: published weights do not fit the model, or weights are those of another kind
            of model.
    """
    if any(name.endswith("patch_embed.lift8.conv_A1.weight") for name in state_dict):
        load_published(model, state_dict)
        return dict(model.state_dict())
    state = dict(state_dict)
    if "pos_embed.weight" not in state:
        raise VitrailError(
            "the weights have no 'pos_embed.weight', so they are not those of an octic or "
            "flip-equivariant ViT; give weights that such a model was saved with (a plain ViT's do "
            "not fit)"
        )
    positions, ours = state["pos_embed.weight"], model.get_parameter("pos_embed.weight")
    if positions.shape[1] == ours.shape[1] and positions.shape != ours.shape:
        state["pos_embed.weight"] = model.pos_embed.resampled(positions, model.grid_size[0])
    filters = state.get("patch_embed.weight")
    if filters is not None and filters.shape[2] != model.in_chans:
        adapted = adapt_input_conv(model.in_chans, filters.flatten(0, 1), filters.shape[2])
        state["patch_embed.weight"] = adapted.unflatten(0, filters.shape[:2])
    return state


class Invariantisation(Invariant):
    """Invariants of octic features, mapped to C channels: ``(8, ..., c)`` to ``(..., C)``.

    Source: octic, App. D, whose "small MLP" behind the invariants is one linear layer in I8, and in
    D8 a linear layer, GELU and the classifier: the printed numbers of parameters leave no room for
    a layer more (tests/vitrail/octic/test_models.py).

    Raises:
        VitrailError: `name` is none of `INVARIANTS`.
    """

    def __init__(self, dim: int, name: str, act_layer: Callable[[], nn.Module]) -> None:
        super().__init__()
        require_known("invariant", name, INVARIANTS)
        self.invariant = INVARIANTS[name](dim)
        self.proj = nn.Linear(self.invariant.out_features, dim)
        self.act = act_layer()
        self.out_features = dim

    def forward(self, x: Tensor) -> Tensor:
        """Compute the invariants of every token and map them to C channels."""
        return self.act(self.proj(self.invariant(x)))


class OcticVisionTransformer(SteerableVisionTransformer):
    """A model of the family D8, H8 or I8 (octic, Sec. 3.2).

    Args:
        family: "d8", where all blocks are octic; "h8" or "i8", where by default the first half
            are. The model that the paper trains with DINOv2 as D8 is an I8 whose blocks are all
            octic.
        invariant: a name of `INVARIANTS`, used by D8 and I8.
        norm: convention of the octic layer norms, see `OcticLayerNorm`. A model that
            `timm.create_model` makes by a name with the tag `AUTHORS` has "published".
        arbitrary_patches: embed patches by any linear map, which breaks the equivariance from the
            start and keeps all other layers (octic, Sec. 4.3, "Impact of equivariance").
        **kwargs: those of `SteerableVisionTransformer`.

    Raises:
        VitrailError: an argument is impossible.
    """

    block_layer = FastBlock
    patch_embed_layer = OcticPatchEmbed
    pos_embed_layer = OcticPositionEmbedding

    def __init__(
        self,
        family: Family = "d8",
        invariant: str = "power_spectrum",
        norm: NormConvention = "total",
        arbitrary_patches: bool = False,
        **kwargs: Any,
    ) -> None:
        require_known("family", family, get_args(Family))
        eps = EPS.get(norm, EPS["total"])
        act_layer = nn.GELU if family == "d8" else nn.Identity
        invariantise = partial(Invariantisation, name=invariant, act_layer=act_layer)
        super().__init__(
            equivariant=family == "d8",
            invariantise=None if family == "h8" else invariantise,
            patch_layer=(
                partial(ArbitraryPatchEmbed, strict_img_size=False) if arbitrary_patches else None
            ),
            norm_layer=partial(OcticLayerNorm, eps=eps, convention=norm),
            **kwargs,
        )


AUTHORS = "authors"
"""The tag in names of models for the weights that the paper's authors published.

    timm.create_model("octic_h8_vit_large_patch16_224.authors", pretrained=True,
                      pretrained_cfg_overlay={"file": "hybrid_deit_large_patch16.pth"})
"""

_OCTIC = [f"octic_{family}_vit_{shape}_224" for family in get_args(Family) for shape in TRAINED]
_WIDEST = [f"octic_d8_vit_{shape}_224" for shape in WIDEST]
_TAGGED = [f"{name}.{AUTHORS}" for name in _OCTIC]
default_cfgs = generate_default_cfgs(dict.fromkeys((*_OCTIC, *_WIDEST, *_TAGGED), CFG))


def _tag(pretrained_cfg: Any) -> str | None:
    """Return the tag of a pretrained config, which timm gives as a tag, a mapping or an object."""
    match pretrained_cfg:
        case None | str():
            return pretrained_cfg
        case Mapping():
            return pretrained_cfg.get("tag")
    return getattr(pretrained_cfg, "tag", None)


def _octic(family: Family, shape: str, pretrained: bool, **kwargs: Any) -> nn.Module:
    name = f"octic_{family}_vit_{shape}_224"
    options: dict[str, Any] = {"family": family, "pretrained_filter_fn": checkpoint_filter_fn}
    if _tag(kwargs.get("pretrained_cfg")) == AUTHORS:
        options["norm"] = "published"
    return build(OcticVisionTransformer, name, shape, pretrained, options, **kwargs)


@register_model
def octic_d8_vit_small_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """D8 of ViT-S/16."""
    return _octic("d8", "small_patch16", pretrained, **kwargs)


@register_model
def octic_d8_vit_base_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """D8 of ViT-B/16."""
    return _octic("d8", "base_patch16", pretrained, **kwargs)


@register_model
def octic_d8_vit_large_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """D8 of ViT-L/16."""
    return _octic("d8", "large_patch16", pretrained, **kwargs)


@register_model
def octic_d8_vit_huge_patch14_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """D8 of ViT-H/14."""
    return _octic("d8", "huge_patch14", pretrained, **kwargs)


@register_model
def octic_d8_vit_huge_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """D8 of ViT-H/16."""
    return _octic("d8", "huge_patch16", pretrained, **kwargs)


@register_model
def octic_d8_vit_gigantic_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """D8 of ViT-G/16."""
    return _octic("d8", "gigantic_patch16", pretrained, **kwargs)


@register_model
def octic_d8_vit_e_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """D8 of ViT-e/16."""
    return _octic("d8", "e_patch16", pretrained, **kwargs)


@register_model
def octic_d8_vit_22b_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """D8 of ViT-22B/16."""
    return _octic("d8", "22b_patch16", pretrained, **kwargs)


@register_model
def octic_h8_vit_small_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """H8 of ViT-S/16."""
    return _octic("h8", "small_patch16", pretrained, **kwargs)


@register_model
def octic_h8_vit_base_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """H8 of ViT-B/16."""
    return _octic("h8", "base_patch16", pretrained, **kwargs)


@register_model
def octic_h8_vit_large_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """H8 of ViT-L/16."""
    return _octic("h8", "large_patch16", pretrained, **kwargs)


@register_model
def octic_h8_vit_huge_patch14_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """H8 of ViT-H/14."""
    return _octic("h8", "huge_patch14", pretrained, **kwargs)


@register_model
def octic_h8_vit_huge_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """H8 of ViT-H/16."""
    return _octic("h8", "huge_patch16", pretrained, **kwargs)


@register_model
def octic_i8_vit_small_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """I8 of ViT-S/16."""
    return _octic("i8", "small_patch16", pretrained, **kwargs)


@register_model
def octic_i8_vit_base_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """I8 of ViT-B/16."""
    return _octic("i8", "base_patch16", pretrained, **kwargs)


@register_model
def octic_i8_vit_large_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """I8 of ViT-L/16."""
    return _octic("i8", "large_patch16", pretrained, **kwargs)


@register_model
def octic_i8_vit_huge_patch14_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """I8 of ViT-H/14."""
    return _octic("i8", "huge_patch14", pretrained, **kwargs)


@register_model
def octic_i8_vit_huge_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """I8 of ViT-H/16."""
    return _octic("i8", "huge_patch16", pretrained, **kwargs)
