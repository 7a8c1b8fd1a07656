"""A small ViT with a selectable position embedding (position, App. G).

A pre-norm ViT with mean pooling by default. The positions can be permuted for each image: the
forward pass takes the images and one permutation per image, which Position-SHAP draws at random to
remove the information on position. `PositionViT._outputs` cuts the image into patches and projects
them (Eq. 1-2). To read the method, read this file, `vitrail.position.embeddings.base` and the file
of the chosen embedding, which `vitrail.position.embeddings` names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, cast, get_args

import torch
from timm.layers import DropPath, Mlp, calculate_drop_path_rates, global_pool_nlc, to_2tuple
from timm.models import (
    build_model_with_cfg,
    checkpoint,
    generate_default_cfgs,
    register_model,
    register_notrace_module,
)
from timm.models._input import get_pretrained_grid_size, update_model_input_size
from torch import Tensor, nn
from torch.nn import functional

from vitrail.errors import VitrailError, require_known
from vitrail.intermediates import Intermediates
from vitrail.position.embeddings import Layout, PositionEmbedding, build_embedding

Pool = Literal["token", "avg", ""]

NORM_EPS = 1e-6
MLP_BIAS_STD = 1e-6


class PositionAttention(nn.Module):
    """Multi-head self-attention whose queries, keys and scores a position embedding may change."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        layer: int,
        qkv_bias: bool,
        drop_rate: float,
        **factory: Any,
    ) -> None:
        super().__init__()
        self.num_heads, self.layer, self.drop_rate = num_heads, layer, drop_rate
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias, **factory)
        self.proj = nn.Linear(dim, dim, **factory)
        self.proj_drop = nn.Dropout(drop_rate)

    def forward(
        self, x: Tensor, pos_embed: PositionEmbedding, permutation: Tensor | None
    ) -> Tensor:
        """Attend within ``(B, T, D)``."""
        q, k, v = self.qkv(x).unflatten(2, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind()
        bias = pos_embed.bias(q, self.layer, permutation)
        q, k = pos_embed.rotate(q, k, self.layer, permutation)
        x = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, dropout_p=self.drop_rate if self.training else 0.0
        )
        output: Tensor = self.proj_drop(self.proj(x.transpose(1, 2).flatten(2)))
        return output


@register_notrace_module  # in a traced graph it is not known whether positions permute
class PositionBlock(nn.Module):
    """A pre-norm layer: attention and MLP, each with a residual connection."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        hidden: int,
        layer: int,
        qkv_bias: bool,
        drop_rate: float,
        drop_path: float,
        **factory: Any,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=NORM_EPS, **factory)
        self.attn = PositionAttention(dim, num_heads, layer, qkv_bias, drop_rate, **factory)
        self.drop_path1 = DropPath(drop_path) if drop_path else nn.Identity()
        self.norm2 = nn.LayerNorm(dim, eps=NORM_EPS, **factory)
        self.mlp = Mlp(dim, hidden, drop=drop_rate, **factory)
        self.drop_path2 = DropPath(drop_path) if drop_path else nn.Identity()
        for name in ("fc1", "fc2"):
            nn.init.xavier_uniform_(self.mlp.get_parameter(f"{name}.weight"))
            nn.init.normal_(self.mlp.get_parameter(f"{name}.bias"), std=MLP_BIAS_STD)

    def forward(
        self, x: Tensor, pos_embed: PositionEmbedding, permutation: Tensor | None
    ) -> Tensor:
        """Apply the layer to tokens ``(B, T, D)``."""
        x = x + self.drop_path1(self.attn(self.norm1(x), pos_embed, permutation))
        output: Tensor = x + self.drop_path2(self.mlp(self.norm2(x)))
        return output


@torch.fx.wrap
def _embedded(x: Tensor, pos_embed: PositionEmbedding, permutation: Tensor | None) -> Tensor:
    """Apply the position embedding to tokens ``(B, T, D)`` before the first layer."""
    return pos_embed.add(x, permutation)


@torch.fx.wrap
def _check(
    images: Tensor, permutation: Tensor | None, img_size: tuple[int, int], positions: int
) -> None:
    """Raise a VitrailError if the shape of `images` or `permutation` does not suit the model."""
    if (size := tuple(images.shape[2:])) != img_size:
        taken, given = (f"{height} x {width}" for height, width in (img_size, size))
        raise VitrailError(f"the model takes images of {taken} pixels, not {given}; set img_size")
    expected = (images.shape[0], positions)
    if permutation is not None and permutation.shape != expected:
        raise VitrailError(
            f"permutation has the shape {tuple(permutation.shape)}; give {expected}, one row "
            "of the model's positions for each image"
        )


class PositionViT(Intermediates):
    """ViT on patches (position, Eq. 1-2) whose positions can be permuted (position, Sec. 3).

    Each image has its own permutation.

    Attributes:
        positions: N, the number of positions that a permutation permutes: those of the patches,
            and that of the CLS token if the embedding has a position for it.
        pos_embed: the position embedding.
    """

    def __init__(
        self,
        embedding: str = "ape",
        class_token: bool = False,
        img_size: int | tuple[int, int] = 32,
        patch_size: int = 4,
        in_chans: int = 3,
        num_classes: int = 10,
        global_pool: Pool | None = None,
        embed_dim: int = 192,
        depth: int = 9,
        num_heads: int = 12,
        mlp_ratio: float = 2.0,
        drop_rate: float = 0.1,
        drop_path_rate: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Build a model with random weights; arguments that timm's ViT also has mean the same.

        Args:
            embedding: a name of `EMBEDDINGS`.
            class_token: whether there is a CLS token.
            img_size: (height, width) of the images in pixels, or the side of square images.
            patch_size: side of a patch in pixels.
            in_chans: number of channels of an image.
            num_classes: number of outputs of the head; 0 for no head.
            global_pool: what is classified: "token" (CLS), the default if there is a CLS token;
                "avg", the mean of the patches, the default otherwise; or "", every token.
            embed_dim: D, the number of channels of a token.
            depth: number of layers.
            num_heads: number of attention heads of every layer.
            mlp_ratio: number of hidden channels of an MLP, divided by D.
            drop_rate: probability of dropout after the embedding, on the attention weights, on the
                attention's output and twice in the MLP.
            drop_path_rate: probability of stochastic depth in the last layer. It rises linearly
                from 0 in the first layer, as in timm.
            device: device of the parameters; on "meta" they have no values.
            dtype: dtype of the parameters.

        Raises:
            VitrailError: an argument is impossible.
        """
        super().__init__()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.patch_size = patch_size
        self.img_size, self.grid_size = self._sizes(img_size)
        if embed_dim % num_heads:
            raise VitrailError(
                f"{num_heads} heads cannot share {embed_dim} channels; "
                f"give embed_dim a multiple of num_heads"
            )
        self.in_chans, self.num_prefix_tokens = in_chans, int(class_token)
        self.num_features = self.head_hidden_size = self.embed_dim = embed_dim
        self.grad_checkpointing = False
        self.feature_info = [
            {"module": f"blocks.{layer}", "num_chs": embed_dim, "reduction": patch_size}
            for layer in range(depth)
        ]

        self.patch_embed = nn.Conv2d(in_chans, embed_dim, patch_size, patch_size, **factory)
        cls_token = nn.Parameter(torch.zeros(1, 1, embed_dim, **factory))
        self.cls_token = cls_token if class_token else None
        self.embedding = embedding
        layout = Layout(self.grid_size, class_token, embed_dim, depth, num_heads)
        self.pos_embed = build_embedding(embedding, layout).to(self.patch_embed.weight)
        self.positions = self.pos_embed.positions
        self.pos_drop = nn.Dropout(drop_rate)
        hidden, qkv_bias = int(embed_dim * mlp_ratio), self.pos_embed.qkv_bias
        drop_paths = cast(list[float], calculate_drop_path_rates(drop_path_rate, depth))
        self.blocks = nn.ModuleList(
            PositionBlock(
                embed_dim, num_heads, hidden, layer, qkv_bias, drop_rate, drop_path, **factory
            )
            for layer, drop_path in enumerate(drop_paths)
        )
        self.norm: nn.Module = nn.LayerNorm(embed_dim, eps=NORM_EPS, **factory)
        if global_pool is None:
            global_pool = "token" if class_token else "avg"
        self.reset_classifier(num_classes, global_pool)

    def _sizes(self, img_size: int | tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return (height, width) of images in pixels, and (rows, columns) of their patches."""
        height, width = to_2tuple(img_size)
        if height % self.patch_size or width % self.patch_size:
            raise VitrailError(
                f"img_size {img_size} is no whole number of patches; "
                f"give a multiple of patch_size {self.patch_size}"
            )
        return (height, width), (height // self.patch_size, width // self.patch_size)

    def no_weight_decay(self) -> set[str]:
        """Return patterns of names of parameters without weight decay: positions and CLS token."""
        return {"pos_embed.*", "cls_token"}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Say which layer each parameter belongs to, as timm's ViT does: stem, blocks, then head.

        The position embedding belongs to the stem, even if it acts in every layer.
        """
        return {
            "stem": "^(?:cls_token|pos_embed|patch_embed)",
            "blocks": [(r"^blocks\.(\d+)", None), ("^norm", (99999,))],
        }

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute the layers' activations in the backward pass, or keep them."""
        self.grad_checkpointing = enable

    def get_classifier(self) -> nn.Module:
        """Return the last layer."""
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: Pool | None = None) -> None:
        """Give the model a new last layer, and another pooling if `global_pool` is given.

        Raises:
            VitrailError: there is no such pooling, or no CLS token for it.
        """
        if global_pool is not None:
            require_known("global_pool", global_pool, get_args(Pool))
            if global_pool == "token" and self.cls_token is None:
                raise VitrailError(
                    "global_pool 'token' needs a CLS token; build the model with class_token=True"
                )
            self.global_pool = global_pool
        self.num_classes = num_classes
        head = nn.Linear(self.num_features, num_classes) if num_classes else nn.Identity()
        self.head = head.to(self.patch_embed.weight)

    def set_input_size(self, img_size: int | tuple[int, int]) -> None:
        """Change the size of the images in pixels, and resample the positions as timm does.

        Raises:
            VitrailError: `img_size` is no whole number of patches, or does not suit the embedding.
        """
        size, grid = self._sizes(img_size)
        if grid != self.grid_size:
            pos_embed = build_embedding(self.embedding, replace(self.pos_embed.layout, grid=grid))
            weights = pos_embed.resampled(self.pos_embed.state_dict(), self.grid_size)
            pos_embed.load_state_dict(weights)
            self.pos_embed = pos_embed.to(self.patch_embed.weight)
            self.positions = pos_embed.positions
        self.img_size, self.grid_size = size, grid
        update_model_input_size(self, size)

    def forward_features(self, images: Tensor, permutation: Tensor | None = None) -> Tensor:
        """Return the normalised tokens ``(B, T, D)``, the CLS token first; see `forward`."""
        for x in self._outputs(images, permutation):
            last = x
        return self._tokens(last, norm=True)

    def _grid(self, images: Tensor) -> tuple[int, int]:
        return self.grid_size

    def _outputs(self, images: Tensor, permutation: Tensor | None = None) -> Iterator[Tensor]:
        """Yield the tokens ``(B, T, D)`` that each layer makes."""
        _check(images, permutation, self.img_size, self.positions)
        x = self.patch_embed(images).flatten(2).mT  # Linear(Patchify(X)) of Eq. 1-2
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)
        x = self.pos_drop(_embedded(x, self.pos_embed, permutation))
        for block in self.blocks:
            if self.grad_checkpointing and self.training:
                x = checkpoint(block, x, self.pos_embed, permutation)
            else:
                x = block(x, self.pos_embed, permutation)
            yield x

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Return the logits of tokens ``(B, T, D)``, or with `pre_logits` the head's input."""
        x = global_pool_nlc(x, self.global_pool, self.num_prefix_tokens)
        return x if pre_logits else self.head(x)

    def forward(self, images: Tensor, permutation: Tensor | None = None) -> Tensor:
        """Return the logits ``(B, classes)`` of images ``(B, I, H, W)``.

        The permutation is ``(B, N)`` int64: in image b, token n has the position of token
        ``permutation[b, n]``, in all layers; None is the identity.

        Raises:
            VitrailError: the shape of `images` or `permutation` does not suit the model.
        """
        return self.forward_head(self.forward_features(images, permutation))


def checkpoint_filter_fn(state_dict: dict[str, Tensor], model: PositionViT) -> dict[str, Tensor]:
    """Adapt weights for another image size to a model: resample the positions as timm does."""
    prefix, ours = "pos_embed.", model.pos_embed.state_dict()
    weights = {n.removeprefix(prefix): w for n, w in state_dict.items() if n.startswith(prefix)}
    if set(weights) != set(ours) or all(weights[name].shape == ours[name].shape for name in ours):
        return state_dict
    rows = weights.get("weight", weights.get("embedding.weight", ()))  # of APE, alone or scaled
    tokens = len(rows) - model.num_prefix_tokens
    grid = get_pretrained_grid_size(model, state_dict["patch_embed.weight"], tokens)
    resampled = model.pos_embed.resampled(weights, grid)
    return {**state_dict, **{prefix + name: weight for name, weight in resampled.items()}}


CFG = {
    "num_classes": 10,
    "input_size": (3, 32, 32),
    "crop_pct": 1.0,
    "fixed_input_size": True,
    "mean": (0.5, 0.5, 0.5),
    "std": (0.5, 0.5, 0.5),
    "first_conv": "patch_embed",
    "classifier": "head",
}
default_cfgs = generate_default_cfgs({"position_vit": CFG})


@register_model
def position_vit(pretrained: bool = False, **kwargs: Any) -> PositionViT:
    """9 layers of 192 channels and 12 heads, for images of 32 pixels (position, App. G)."""
    out_indices = kwargs.pop("out_indices", min(3, kwargs.get("depth", 9)))
    return build_model_with_cfg(
        PositionViT,
        "position_vit",
        pretrained,
        feature_cfg={"out_indices": out_indices, "feature_cls": "getter"},
        pretrained_filter_fn=checkpoint_filter_fn,
        **kwargs,
    )
