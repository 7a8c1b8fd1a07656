"""CvT: Introducing Convolutions to Vision Transformers (Wu et al., ICCV 2021), which timm lacks.

https://arxiv.org/abs/2103.15808. The two ideas: every stage begins with a strided convolution whose
patches overlap (convolutional token embedding, Sec. 3.2), and queries, keys and values are
depthwise convolutions of the map of tokens (convolutional projection, Sec. 3.3). Convolutions
encode relative positions, so there is no position embedding. Tokens stay channels-last:
``(B, H, W, C)``, or ``(B, P + H W, C)`` behind P class tokens, one in the last stage, else none.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Literal, cast, get_args

import torch
from timm.layers import DropPath, global_pool_nlc, to_2tuple
from timm.models import generate_default_cfgs, register_model, register_notrace_module
from timm.models._features import feature_take_indices
from timm.models._input import update_model_input_size
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from vitrail.errors import VitrailError, require_known
from vitrail.shift.features import StageModel, build
from vitrail.shift.geometry import Frame, Size, borders, circular_pad

torch.fx.wrap("circular_pad")  # one node of a traced graph

PaddingMode = Literal["zeros", "circular"]

EPS = 1e-5  # of LayerNorm


class ConvEmbed(nn.Module):
    """Convolutional token embedding (CvT, Sec. 3.2)."""

    def __init__(self, in_chans: int, dim: int, kernel: int, stride: int) -> None:
        super().__init__()
        # The same padding on both sides, so that H pixels make H / stride tokens.
        self.conv = nn.Conv2d(in_chans, dim, kernel, stride, padding=(kernel - stride + 1) // 2)
        self.norm = nn.LayerNorm(dim, eps=EPS)
        self.circular = False

    def convolve(self, x: Tensor) -> Tensor:
        """Embed ``(B, H, W, C)`` as ``(B, H / s, W / s, D)``, before the norm."""
        conv, stride, padding = self.conv, self.conv.stride[0], int(self.conv.padding[0])
        if self.circular:
            x, padding = circular_pad(x, *borders(conv, stride)), 0
        x = x.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
        return functional.conv2d(x, conv.weight, conv.bias, stride, padding).permute(0, 2, 3, 1)


class ConvProjection(nn.Module):
    """Convolutional projection: depthwise convolution, batch norm, linear (CvT, Sec. 3.3)."""

    def __init__(self, dim: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(dim, dim, 3, stride, padding=1, groups=dim, bias=False)
        self.norm = nn.BatchNorm2d(dim)
        self.linear = nn.Linear(dim, dim)

    def convolve(self, x: Tensor, padding: int, stride: int | None = None) -> Tensor:
        """Convolve ``(B, H, W, C)``, by default at the layer's own stride."""
        stride = self.conv.stride[0] if stride is None else stride
        x = functional.conv2d(
            x.permute(0, 3, 1, 2), self.conv.weight, None, stride, padding, groups=x.shape[-1]
        )
        return x.permute(0, 2, 3, 1)

    def project(self, prefix: Tensor, x: Tensor) -> Tensor:
        """Project P class tokens and a map that `convolve` has returned: ``(B, P + H W, C)``."""
        x = self.norm(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1).flatten(1, 2)
        if prefix.shape[1]:
            x = torch.cat([prefix, x], dim=1)
        return self.linear(x)


@register_notrace_module
class ConvAttention(nn.Module):
    """Attention whose keys and values are sparser than its queries (CvT, Sec. 3.3).

    Source: shift, Eq. 7-8.
    """

    def __init__(self, dim: int, heads: int, kv_stride: int) -> None:
        super().__init__()
        self.heads = heads
        self.scale = dim**-0.5  # of all heads together: CvT's own choice
        self.query = ConvProjection(dim, 1)
        self.key = ConvProjection(dim, kv_stride)
        self.value = ConvProjection(dim, kv_stride)
        self.proj = nn.Linear(dim, dim)
        self.circular = False

    def forward(self, x: Tensor, size: Size) -> Tensor:
        """Attend among the tokens ``(B, P + H W, C)`` of each image; `size` is ``(H, W)``."""
        prefix, feature_map = x.split([x.shape[1] - size[0] * size[1], size[0] * size[1]], dim=1)
        feature_map = feature_map.unflatten(1, size)
        padding = 0 if self.circular else 1
        feature_map = circular_pad(feature_map, 1, 1) if self.circular else feature_map.contiguous()

        key, value = self.keys_and_values(feature_map, padding)
        query = self.query.project(prefix, self.query.convolve(feature_map, padding))
        key, value = self.key.project(prefix, key), self.value.project(prefix, value)
        query, key, value = (
            y.unflatten(2, (self.heads, -1)).transpose(1, 2) for y in (query, key, value)
        )  # (B, heads, tokens, C / heads)
        y = functional.scaled_dot_product_attention(query, key, value, scale=self.scale)
        return self.proj(y.transpose(1, 2).flatten(2))

    def keys_and_values(self, feature_map: Tensor, padding: int) -> tuple[Tensor, Tensor]:
        """Convolve ``(B, H, W, C)`` for keys and for values."""
        return self.key.convolve(feature_map, padding), self.value.convolve(feature_map, padding)


@torch.fx.wrap
def _require_multiples(size: Size, multiple: int) -> None:
    if size[0] % multiple or size[1] % multiple:
        raise VitrailError(
            f"images of {size[0]} x {size[1]} pixels do not fit a circular CvT of these"
            f" strides: resize or crop both sides to multiples of {multiple}"
        )


class Mlp(nn.Module):
    """Two linear layers with a QuickGELU, ``x sigmoid(1.702 x)``, between them."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the MLP to the last axis."""
        # A QuickGELU is a SiLU between two scalings, which cost less on weights than on tokens.
        scale = 1.702
        x = functional.linear(x, self.fc1.weight * scale, self.fc1.bias * scale)
        return functional.linear(functional.silu(x), self.fc2.weight / scale, self.fc2.bias)


class Block(nn.Module):
    """Convolutional transformer block (CvT, Fig. 2b)."""

    def __init__(
        self, dim: int, heads: int, kv_stride: int, mlp_ratio: float, drop_path: float
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=EPS)
        self.attn = ConvAttention(dim, heads, kv_stride)
        self.drop_path1 = DropPath(drop_path) if drop_path else nn.Identity()
        self.norm2 = nn.LayerNorm(dim, eps=EPS)
        self.mlp = Mlp(dim, int(dim * mlp_ratio))
        self.drop_path2 = DropPath(drop_path) if drop_path else nn.Identity()

    def forward(self, x: Tensor, size: Size) -> Tensor:
        """Apply the block to tokens ``(B, P + H W, C)``; `size` is ``(H, W)``."""
        x = x + self.drop_path1(self.attn(self.norm1(x), size))
        return x + self.drop_path2(self.mlp(self.norm2(x)))


class Stage(nn.Module):
    """An embedding and the blocks on its tokens."""

    def __init__(self, embed: ConvEmbed, blocks: Sequence[Block], has_class_token: bool) -> None:
        super().__init__()
        self.embed = embed
        dim = embed.conv.out_channels
        self.cls_token = nn.Parameter(torch.empty(1, 1, dim)) if has_class_token else None
        if self.cls_token is not None:
            nn.init.trunc_normal_(self.cls_token, std=0.02)
        self.blocks = cast(Sequence[Block], nn.ModuleList(blocks))
        self.grad_checkpointing = False

    def forward(self, feature_map: Tensor) -> Tensor:
        """Transform embedded tokens: ``(B, H, W, C)`` to ``(B, P + H W, C)``."""
        size = (feature_map.shape[1], feature_map.shape[2])
        x = feature_map.flatten(1, 2)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)
        for block in self.blocks:
            if self.grad_checkpointing and torch.is_grad_enabled():
                contexts = functools.partial(_recomputation, block)
                x = checkpoint(block, x, size, use_reentrant=False, context_fn=contexts)
            else:
                x = block(x, size)
        return x


def _recomputation(block: nn.Module) -> tuple[Any, Any]:
    """Return the contexts in which `block` is computed, and computed again."""
    return nullcontext(), _without_statistics(block)


@contextmanager
def _without_statistics(block: nn.Module) -> Iterator[None]:
    """Prevent a recomputed batch from updating the running statistics a second time."""
    norms = [module for module in block.modules() if isinstance(module, nn.BatchNorm2d)]
    before = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum, norm.num_batches_tracked = 0.0, None
    try:
        yield
    finally:
        for norm, (momentum, batches) in zip(norms, before, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, batches


class CvT(StageModel):
    """CvT, by default CvT-13 (CvT, Table 2).

    Args:
        img_size: (height, width) in pixels, or the side of square images. It is only checked: the
            weights fit any size.
        in_chans: number of channels of an image.
        num_classes: number of classes; 0 for no head.
        global_pool: what the head takes: the class token ("token"), the mean of the other tokens
            ("avg"), or all tokens ("").
        embed_dims: number of channels of each stage.
        depths: number of blocks of each stage.
        num_heads: number of attention heads of each stage.
        kernels: kernel size of each stage's embedding.
        strides: stride of each stage's embedding.
        kv_strides: stride of each stage's keys and values.
        mlp_ratio: hidden width of an MLP, divided by the width of its stage.
        drop_rate: probability of dropout before the head.
        drop_path_rate: probability of stochastic depth in the last block. It rises from 0 over the
            last stage; the other stages have none, as in CvT's own configuration.
        padding_mode: padding of every convolution, "zeros" or "circular".
        init_std: initial standard deviation of the linear layers' weights; much narrower models
            need a larger value than CvT's own, the default.
        device: device of the model, by default torch's default device.
        dtype: dtype of the parameters, by default torch's default dtype, in which the initial
            values are drawn in any case.

    Raises:
        VitrailError: `img_size` does not fit, or `padding_mode` is unknown.
    """

    def __init__(
        self,
        img_size: int | Size = 224,
        in_chans: int = 3,
        num_classes: int = 1000,
        global_pool: str = "token",
        embed_dims: Sequence[int] = (64, 192, 384),
        depths: Sequence[int] = (1, 2, 10),
        num_heads: Sequence[int] = (1, 3, 6),
        kernels: Sequence[int] = (7, 3, 3),
        strides: Sequence[int] = (4, 2, 2),
        kv_strides: Sequence[int] = (2, 2, 2),
        mlp_ratio: float = 4.0,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        padding_mode: PaddingMode = "zeros",
        init_std: float = 0.02,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_chans = in_chans
        self.strides, self.kv_strides = tuple(strides), tuple(kv_strides)
        with torch.get_default_device() if device is None else torch.device(device):
            stages = []
            self.feature_info: list[dict[str, Any]] = []
            last = len(embed_dims) - 1
            for i, dim in enumerate(embed_dims):
                embed = ConvEmbed(embed_dims[i - 1] if i else in_chans, dim, kernels[i], strides[i])
                rates = torch.linspace(
                    0, drop_path_rate * (i == last), depths[i], device="cpu"
                ).tolist()
                blocks = [
                    Block(dim, num_heads[i], kv_strides[i], mlp_ratio, rate) for rate in rates
                ]
                stages.append(Stage(embed, blocks, has_class_token=i == last))
                info = {"num_chs": dim, "reduction": math.prod(strides[: i + 1])}
                self.feature_info.append({**info, "module": f"stages.{i}"})
            self.stages = cast(Sequence[Stage], nn.ModuleList(stages))
            # Multiples of this many pixels give whole numbers of tokens, keys and values.
            reductions = [info["reduction"] for info in self.feature_info]
            self.size_multiple = math.lcm(*map(operator.mul, reductions, kv_strides))
            self.num_features = self.head_hidden_size = embed_dims[-1]
            self.norm: nn.Module = nn.LayerNorm(self.num_features, eps=EPS)
            self.head_drop = nn.Dropout(drop_rate)
            self.reset_classifier(num_classes, global_pool)
            for module in self.modules():
                if isinstance(module, nn.Linear):  # convolutions keep torch's initialisation
                    nn.init.trunc_normal_(module.weight, std=init_std)
                    nn.init.zeros_(module.bias)
        self.to(dtype=dtype)
        self.set_padding_mode(padding_mode)
        self._check_size(to_2tuple(img_size))

    def set_padding_mode(self, padding_mode: PaddingMode) -> None:
        """Pad all convolutions with "zeros" or make them "circular"."""
        require_known("padding_mode", padding_mode, get_args(PaddingMode))
        self.padding_mode = padding_mode
        for module in self.modules():
            if isinstance(module, ConvEmbed | ConvAttention):
                module.circular = padding_mode == "circular"

    def _check_size(self, size: Size) -> None:
        if self.padding_mode == "circular":
            _require_multiples(size, self.size_multiple)

    def set_input_size(self, img_size: int | Size) -> None:
        """Set another size of images; the weights fit any size.

        Raises:
            VitrailError: `img_size` does not fit the strides of a circular CvT.
        """
        self._check_size(to_2tuple(img_size))
        update_model_input_size(self, img_size)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute blocks in the backward pass, to save memory."""
        for stage in self.stages:
            stage.grad_checkpointing = enable

    def no_weight_decay(self) -> set[str]:
        """Return the names of parameters besides norms and biases that should not decay."""
        return {name for name, _ in self.named_parameters() if name.endswith("cls_token")}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Say which layer each parameter belongs to, as timm's Swin does: stem, blocks, then head.

        A later stage's embedding belongs to its first block; `coarse` groups by stages instead.
        """
        blocks: list[tuple[str, Any]] = [
            (r"^stages\.(\d+)\.(?:embed|cls_token)", (0,)),
            (r"^stages\.(\d+)\.blocks\.(\d+)", None),
            ("^norm", (99999,)),
        ]
        return {"stem": r"^stages\.0\.embed", "blocks": r"^stages\.(\d+)" if coarse else blocks}

    def get_classifier(self) -> nn.Module:
        """Return the head's linear layer."""
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Replace the head; `global_pool` is "token", "avg" (of all other tokens), "" or None.

        None keeps the pooling. Raises a VitrailError if there is no such pooling.
        """
        self.num_classes = num_classes
        if global_pool is not None:
            require_known("global_pool", global_pool, ("token", "avg", ""))
            self.global_pool = global_pool
        like = self.stages[0].embed.conv.weight
        self.head = (
            nn.Linear(self.num_features, num_classes, device=like.device, dtype=like.dtype)
            if num_classes
            else nn.Identity()
        )

    def prune_intermediate_layers(
        self, indices: int | list[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Drop the stages after the last of `indices` and, if asked, the norm and the head.

        If a stage is dropped, so are the norm and the head. Returns the indices, counted from the
        first stage.
        """
        taken, last = feature_take_indices(len(self.stages), indices)
        ends_early = last + 1 < len(self.stages)
        self.stages = self.stages[: last + 1]
        if prune_norm or ends_early:
            self.norm = nn.Identity()
        if ends_early:
            self.num_features = self.head_hidden_size = self.feature_info[last]["num_chs"]
        if prune_head or ends_early:
            self.reset_classifier(0, "")
        return taken

    def forward(self, x: Tensor) -> Tensor:
        """Return logits ``(B, classes)`` of images ``(B, C, height, width)``."""
        return self.forward_head(self.forward_features(x))

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Pool and classify what `forward_features` returned; `pre_logits` only pools.

        Source: shift, Eq. 4: "avg" takes the mean of the tokens, that is the sum divided by their
        number. By default the head sees the class token.
        """
        x = self.head_drop(global_pool_nlc(x, self.global_pool))
        return x if pre_logits else self.head(x)

    def _stages(self, images: Tensor) -> Iterator[tuple[Tensor, Tensor, Frame]]:
        """Yield each stage's tokens ``(B, P + H W, C)``, map ``(B, H, W, C)`` and frame."""
        self._check_size((images.shape[2], images.shape[3]))
        feature_map, frame = images.permute(0, 2, 3, 1), Frame.of(images)
        for index, stage in enumerate(self.stages):
            feature_map, frame = self._embed(index, feature_map, frame)
            tokens = stage(stage.embed.norm(feature_map))
            prefix = tokens.shape[1] - feature_map.shape[1] * feature_map.shape[2]
            feature_map = tokens[:, prefix:].unflatten(1, feature_map.shape[1:3])
            yield tokens, feature_map, frame

    def _embed(self, index: int, x: Tensor, frame: Frame) -> tuple[Tensor, Frame]:
        """Embed ``(B, H, W, C)`` for stage `index`, before the norm; return tokens and frame."""
        tokens = self.stages[index].embed.convolve(x)
        return tokens, Frame(frame.offset, frame.stride * self.strides[index], frame.size)


LETTERS = {"q": "query", "k": "key", "v": "value"}
RENAMINGS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"^(cvt\.encoder\.stages\.|stage)(\d+)\.", r"stages.\2."),
    (r"\.(patch_embed\.proj|embedding\.convolution_embeddings\.projection)\.", ".embed.conv."),
    (r"\.(patch_embed\.norm|embedding\.convolution_embeddings\.normalization)\.", ".embed.norm."),
    (r"\.layers\.(\d+)\.", r".blocks.\1."),
    (r"\.attention\.attention\.", ".attn."),
    (
        r"\.(conv_proj|convolution_projection)_([qkv])[a-z]*\.(convolution_projection\.)?",
        lambda found: f".{LETTERS[found[2]]}.",
    ),
    (r"\.(proj|projection)_([qkv])[a-z]*\.", lambda found: f".{LETTERS[found[2]]}.linear."),
    (r"\.(query|key|value)\.convolution\.", r".\1.conv."),
    (r"\.(query|key|value)\.(bn|normalization)\.", r".\1.norm."),
    (r"\.attention\.output\.dense\.", ".attn.proj."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"\.output\.dense\.", ".mlp.fc2."),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"^layernorm\.", "norm."),
    (r"^classifier\.", "head."),
)
"""Renamings from the authors' names (microsoft/CvT), and from those in transformers, to ours."""


def published_filter(state_dict: dict[str, Any], model: nn.Module) -> dict[str, Tensor]:
    """Rename published weights of CvT to our names; weights with our names are not changed.

    Published names are those of microsoft/CvT, and those of transformers, which the weights of
    ``microsoft/cvt-13`` have. ``convert_cvt_original_pytorch_checkpoint_to_pytorch.py`` of
    transformers lists both.
    """
    renamed = {}
    for name, weight in state_dict.items():
        for pattern, replacement in RENAMINGS:
            name = re.sub(pattern, replacement, name)
        renamed[name] = weight
    return renamed


# Entries of timm's pretrained config of a model that differ from timm's defaults.
DEFAULT_CFG = {
    "pool_size": (14, 14),
    "first_conv": "stages.0.embed.conv",
    "classifier": "head",
}

default_cfgs = generate_default_cfgs({"cvt_13": DEFAULT_CFG, "cvt_21": DEFAULT_CFG})


def create(model_type: type[CvT], name: str, pretrained: bool, **kwargs: Any) -> nn.Module:
    """Build a registered CvT by `build`; it also loads published weights."""
    return build(model_type, name, pretrained, pretrained_filter_fn=published_filter, **kwargs)


CVT_13 = {"depths": (1, 2, 10)}
CVT_21 = {"depths": (1, 4, 16)}


@register_model
def cvt_13(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """CvT-13: 19,997,480 parameters (CvT, Table 2)."""
    return create(CvT, "cvt_13", pretrained, **{**CVT_13, **kwargs})


@register_model
def cvt_21(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """CvT-21 (CvT, Table 2)."""
    return create(CvT, "cvt_21", pretrained, **{**CVT_21, **kwargs})
