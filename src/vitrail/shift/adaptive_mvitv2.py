"""A-MViTv2: MViTv2 with the paper's modules (shift, Sec. 4, Sec. 5.1), on timm's own parts.

All of A-MViTv2 in one file, equation by equation: examples/a_mvitv2_in_one_file.py.

A phase is the row and the column at which a grid begins, each below the stride; an offset tells
which token comes first. To roll by m is to read x[i + m] (shift, Eq. 1). All convolutions and
poolings are circular (Sec. 5.1). A-token (Eq. 5-6, Eq. 13-14) is ``self.grid(images, conv)`` in
`AdaptiveMultiScaleVit._stages`: it takes the grid with the largest energy, the sum of the squared
norms of its tokens ("per_stage": of the squares of their products with one direction). timm's head
takes the mean of the last tokens, which makes logits invariant (Eq. 3-4).

MViTv2 (Li et al., CVPR 2022) pools the queries, keys and values of its attention by strided
convolutions, and its skip connections by strided maxima. Each of these grids is chosen by the
energy of its tokens, too (shift, Eq. 23: `selection.strongest_tokens`). To roll by the phase and
then pool at the stride (values, skip connections) gives the same tokens as to convolve densely and
sample at the phase (queries, keys). Queries and their skip connection share a grid, as do keys and
values, for all heads. The relative position embedding takes the phases of both grids into account,
and its distances are circular (A-RPE, shift, Eq. 24: `circular_distance`,
`AdaptiveAttention.position_scores`): its tables have a row for each of M distances instead of
2M - 1, and the tables of a plain model are folded when they are loaded (`fold`). In the paper a row
is one number, added to the score. Here it is a vector, as in MViTv2: its product with the query is
added, for rows and for columns. The paper does not say how these convolutions choose their grids;
here they do as A-PMerge does. `selection` has the choices, `polyphase` the arg max and the
sampling, `energies` the scores of the tokeniser's grids, `geometry` where tokens sit in an image.

``"per_layer"`` chooses in each block, by the densely convolved queries and keys (as A-PMerge does).
``"per_stage"`` chooses once for each stage, by the tokens at its beginning: modulo all its strides,
so that the grids of all its blocks, and of the next stage, begin at the first token.

The anchor is a token ("per_stage": a block of tokens) that the content of an image marks, however
the image is shifted: the place where the map of the tokens' norms has the largest correlation with
a fixed template (`polyphase.tie_break_scores`). As in A-CvT, the image is rolled to it before the
first block and tokenised again (`selection.tokens_at`), so that shifted images have the same bits.
From there on, of equally strong grids the first is taken.

A block of ``"per_layer"`` takes two grids of the same tokens, g for queries and h for keys. If an
image x equals its own shift T x, the grids h and T h have equal scores, but g and h are another
pair than g and T h. After the anchor all shifts of an image give h and T h in the same order, so
the block takes the first, which is the same for all shifts. ``"per_stage"`` takes one grid for
queries and keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Self, cast

import torch
from timm.layers import to_2tuple, trunc_normal_tf_
from timm.models import checkpoint, register_model, register_notrace_module
from timm.models._input import update_model_input_size
from timm.models.mvitv2 import (
    MultiScaleAttention,
    MultiScaleBlock,
    MultiScaleVit,
    MultiScaleVitCfg,
    MultiScaleVitStage,
    checkpoint_filter_fn,
)
from torch import Tensor, nn
from torch.nn import functional

from vitrail.errors import VitrailError
from vitrail.shift.energies import prepare_correlation
from vitrail.shift.features import StageModel, build, default_cfgs_of, require_size
from vitrail.shift.geometry import Frame, Size, borders, circular_pad
from vitrail.shift.mvitv2 import BASE, LARGE, SMALL, TINY, configured
from vitrail.shift.polyphase import roll
from vitrail.shift.selection import (
    Adaptive,
    FixedSelection,
    Selection,
    set_class,
    strongest_tokens,
    tokens_at,
)

for _node in ("roll", "tokens_at", "require_size"):  # one node each of a traced graph
    torch.fx.wrap(_node)

AXES = ("h", "w")


def circular_distance(queries: Tensor, keys: Tensor, period: int) -> Tensor:
    """Return ``(p_q - p_k) mod period`` of int ``(Q,)`` and ``(K,)``: ``(Q, K)`` (shift, Eq. 24).

    Linear distances take 2M - 1 values and change when tokens wrap around the border; these take M
    and do not (Fig. 3).
    """
    return (queries[:, None] - keys[None, :]) % period


def fold(table: Tensor, period: int) -> Tensor:
    """Fold a table of linear distances ``(2M - 1, C)`` into one of circular ones ``(M, C)``.

    Row ``d + M - 1`` is the embedding of distance d; M is the period. Each circular distance takes
    the embedding of the linear distance of the same residue that is nearest to zero, of two equally
    near ones their mean: a trained model keeps the embeddings of neighbours.
    """
    distance = torch.arange(period, device=table.device)
    ahead = torch.where(2 * distance > period, distance - period, distance)
    behind = torch.where(2 * distance >= period, distance - period, distance)
    # ahead == behind unless the distance is exactly M / 2.
    return (table[ahead + period - 1] + table[behind + period - 1]) / 2


class AdaptiveAttention(MultiScaleAttention):
    """timm's attention, circular, on the grids of queries and keys with the most energy.

    Source: shift, Eq. 7-8, Eq. 11, Eq. 24.
    """

    pool_q: Any
    pool_k: Any
    pool_v: Any
    norm_q: Any
    norm_k: Any
    norm_v: Any
    distance_h: Tensor
    distance_w: Tensor
    key_place: Tensor
    """``(keys, rows + columns)``, 1 at the row and at the column of each key, padded by zeros."""

    def make_adaptive(self, size: Size, grid: FixedSelection) -> None:
        """Complete an attention that timm has built, with new tables for a map of `size` tokens."""
        self.grid = grid
        self.stride_q, self.stride_kv = self.pool_q.stride[0], self.pool_k.stride[0]
        # The tables have a row for each multiple of the step. If both strides are above 1 and the
        # phases of queries and keys differ, a distance lies between two multiples and takes the row
        # of the smaller (`_embeddings`). This is still equivariant: a shift of the image changes no
        # circular distance.
        self.size, self.step = size, min(self.stride_q, self.stride_kv)
        for axis, period in zip(AXES, size, strict=True):
            table = self.proj.weight.new_empty(period // self.step, self.head_dim)
            trunc_normal_tf_(table, std=0.02)
            setattr(self, f"rel_pos_{axis}", nn.Parameter(table))
        self.init_non_persistent_buffers()

    def init_non_persistent_buffers(self) -> None:
        """Make the buffers that are in no state dict; timm calls this after `Module.to_empty`."""
        for axis, period in zip(AXES, self.size, strict=True):
            queries = torch.arange(0, period, self.stride_q)
            keys = torch.arange(0, period, self.stride_kv)
            distance = circular_distance(queries, keys, period).to(self.proj.weight.device)
            self.register_buffer(f"distance_{axis}", distance, persistent=False)
        rows, columns = (period // self.stride_kv for period in self.size)
        row, column = torch.eye(rows), torch.eye(columns)
        place = torch.cat([row.repeat_interleave(columns, 0), column.repeat(rows, 1)], dim=1)
        # Kernels of fused attention ask for a width that is a multiple of 8.
        self.unused = -(self.head_dim + rows + columns) % 8
        place = functional.pad(place, (0, self.unused))
        self.register_buffer("key_place", place.to(self.proj.weight), persistent=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Attend among the tokens of each image.

        Args:
            x: tokens ``(B, H, W, C)``. Unless every operation chooses its grid, all grids begin at
                the first token.

        Returns:
            ``(B, H / s, W / s, D)`` for queries of stride s, and the phase of their grid,
            ``(B, 2)``, or ``(1, 2)`` where it is the same for all.
        """
        q, k, v, q_phase, k_phase = self._pooled(self.qkv(x))
        height, width = q.shape[1:3]
        q, k, v = (part.unflatten(-1, (self.num_heads, -1)) for part in (q, k, v))
        q, k, v = self.norm_q(q), self.norm_k(k), self.norm_v(v)

        to_rows, to_columns = self.position_scores(q, q_phase - k_phase)
        q, k, v = (part.flatten(1, 2).transpose(1, 2) for part in (q, k, v))  # (B, heads, L, d)
        # One product adds the position embedding too: a key picks its row and its column.
        place = self.key_place.to(k.dtype).expand(*k.shape[:2], -1, -1)
        unused = q.new_zeros(()).expand(*q.shape[:3], self.unused)
        queries = torch.cat([q * self.scale, to_rows, to_columns, unused], dim=-1)
        keys = torch.cat([k, place], dim=-1)
        x = functional.scaled_dot_product_attention(queries, keys, v, scale=1.0)
        if self.residual_pooling:
            x = x + q
        return self.proj(x.transpose(1, 2).reshape(x.shape[0], height, width, -1)), q_phase

    def position_scores(self, q: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        """Score each query with the embeddings of rows and columns of keys (shift, Eq. 11, Eq. 24).

        A row of a table is a vector, and the score is its product with the query, as in MViTv2. The
        paper's table has one number for each distance, which is the score.

        Args:
            q: queries ``(B, H, W, heads, d)``.
            shift: tokens by which the first query is ahead of the first key, ``(B or 1, 2)``.

        Returns:
            ``(B, heads, H W, rows)`` and ``(B, heads, H W, columns)``.
        """
        rows, columns = self._embeddings(shift)
        to_rows = torch.einsum("byxnc,bykc->bnyxk", q, rows)
        to_columns = torch.einsum("byxnc,bxkc->bnyxk", q, columns)
        return to_rows.flatten(2, 3), to_columns.flatten(2, 3)

    def _pooled(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return queries, keys and values on their grids, and the phases of the first two."""
        first = torch.zeros(1, 2, dtype=torch.int64, device=qkv.device)
        if self.grid.per_operation and max(self.stride_q, self.stride_kv) > 1:
            q, k, v = qkv.split(self.dim_out, dim=-1)
            q, q_phase = self._strongest(q, self.pool_q, first)
            k, k_phase = self._strongest(k, self.pool_k, first)
            v = v if k_phase is first else roll(v, k_phase)
            return q, k, self._convolved(v, [self.pool_v], self.stride_kv), q_phase, k_phase
        pools = (self.pool_q, self.pool_k, self.pool_v)
        if self.stride_q == self.stride_kv:
            q, k, v = self._convolved(qkv, pools, self.stride_q).chunk(3, dim=-1)
        else:
            q, kv = qkv.split([self.dim_out, 2 * self.dim_out], dim=-1)
            q = self._convolved(q, pools[:1], self.stride_q)
            k, v = self._convolved(kv, pools[1:], self.stride_kv).chunk(2, dim=-1)
        return q, k, v, first, first

    def _strongest(self, x: Tensor, conv: nn.Conv2d, first: Tensor) -> tuple[Tensor, Tensor]:
        """Convolve ``(B, H, W, D)`` at every token, and keep the strongest grid and its phase.

        With stride 1 there is one grid only, whose phase is `first`.
        """
        dense = self._convolved(x, [conv], stride=1)
        if conv.stride[0] == 1:
            return dense, first
        return strongest_tokens(dense, conv, self.grid.in_order)

    def _convolved(self, x: Tensor, convs: Sequence[nn.Conv2d], stride: int) -> Tensor:
        """Convolve ``(B, H, W, N)``, the heads of each of `convs` side by side, at `stride`."""
        x = circular_pad(x, *borders(convs[0], stride)).permute(0, 3, 1, 2)
        weights = torch.stack([conv.weight for conv in convs])[:, None]  # all heads have the same
        weight = weights.expand(-1, self.num_heads, -1, -1, -1, -1).flatten(0, 2)
        return functional.conv2d(x, weight, stride=stride, groups=len(weight)).permute(0, 2, 3, 1)

    def _embeddings(self, shift: Tensor) -> list[Tensor]:
        """Return the embedding of each pair of query and key: for each axis ``(B or 1, Q, K, d)``.

        The row of the table is the circular distance divided by the step, rounded down.
        """
        distances = (self.distance_h, self.distance_w)
        tables = (self.rel_pos_h, self.rel_pos_w)
        return [
            functional.embedding((distance + ahead[:, None, None]) % period // self.step, table)
            for distance, table, period, ahead in zip(
                distances, tables, self.size, shift.unbind(dim=1), strict=True
            )
        ]

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        for axis, period in zip(AXES, self.size, strict=True):
            name, length = f"{prefix}rel_pos_{axis}", period // self.step
            table = state_dict.get(name)
            if table is not None and len(table) == 2 * length - 1:
                # timm counts from the farthest key: distance 0 is at row M - stride_kv / step.
                centred = table.roll(self.stride_kv // self.step - 1, 0)
                state_dict[name] = fold(centred, length)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


class AdaptiveBlock(MultiScaleBlock):
    """timm's block; its skip connection is pooled on the grid of the queries, circularly."""

    attn: Any
    shortcut_pool_attn: Any

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Return new tokens and the phase of their grid: see `AdaptiveAttention`."""
        x_norm = self.norm1(x)
        shortcut = x if self.shortcut_proj_attn is None else self.shortcut_proj_attn(x_norm)
        x, phase = self.attn(x_norm)
        x = self._pooled_shortcut(shortcut, phase) + self.drop_path1(x)
        x_norm = self.norm2(x)
        shortcut = x if self.shortcut_proj_mlp is None else self.shortcut_proj_mlp(x_norm)
        return shortcut + self.drop_path2(self.mlp(x_norm)), phase

    def _pooled_shortcut(self, x: Tensor, phase: Tensor) -> Tensor:
        pool = self.shortcut_pool_attn
        if pool is None:
            return x
        if self.attn.grid.per_operation:
            x = roll(x, phase)
        x = circular_pad(x, *borders(pool, pool.stride[0])).permute(0, 3, 1, 2)
        return functional.max_pool2d(x, pool.kernel_size, pool.stride).permute(0, 2, 3, 1)


def stage_period(stage: Any) -> int:
    """Return a multiple of all strides of a stage's blocks, in tokens of the stage's input."""
    stride = period = 1
    for block in stage.blocks:
        stride_q, stride_kv = (pool.stride[0] for pool in (block.attn.pool_q, block.attn.pool_k))
        period = math.lcm(period, stride * stride_q, stride * stride_kv)
        stride *= stride_q
    return period


@register_notrace_module
class AdaptiveStage(MultiScaleVitStage):
    """timm's stage with the attribute `period`, its `stage_period`."""

    blocks: Any

    def make_adaptive(self, size: Size, grid: FixedSelection) -> Size:
        """Complete a stage that timm has built, over `size` tokens; return its output's size."""
        stride, self.period = 1, stage_period(self)
        for block in self.blocks:
            attention = set_class(set_class(block, AdaptiveBlock).attn, AdaptiveAttention)
            attention.make_adaptive((size[0] // stride, size[1] // stride), grid)
            stride *= attention.stride_q
        return size[0] // stride, size[1] // stride

    def forward(self, x: Tensor, frame: Frame) -> tuple[Tensor, Frame]:  # type: ignore[override]
        """Return new tokens ``(B, H / s, W / s, D)`` of ``(B, H, W, C)``, and their frame."""
        for block in self.blocks:
            x, phase = checkpoint(block, x) if self.grad_checkpointing else block(x)
            frame = frame.sampled(phase, block.attn.stride_q)
        return x, frame


class AdaptiveMultiScaleVit(Adaptive, StageModel, MultiScaleVit):
    """A-MViTv2.

    Args:
        cfg: timm's configuration, without class token and absolute position embedding.
        img_size: (height, width) of the images in pixels, or the side of square images.
        selection: "per_layer", "per_stage" or "fixed", see the module.
        kwargs: other arguments of timm's model.

    Raises:
        VitrailError: strides do not divide the image, or `cfg` or `selection` is not supported.
    """

    feature_info: Any
    img_size: Size
    size_multiple: int

    def __init__(
        self,
        cfg: MultiScaleVitCfg,
        img_size: int | Size = 224,
        selection: Selection = "per_layer",
        **kwargs: Any,
    ) -> None:
        size = cast(Size, tuple(to_2tuple(img_size)))
        super().__init__(cfg, (max(size), max(size)), **kwargs)  # timm accepts square sizes only
        self.make_adaptive(selection, size)

    @classmethod
    def of(
        cls,
        model: nn.Module,
        selection: Selection | str = "per_layer",
        inplace: bool = False,
        **modules: Any,
    ) -> Self:
        """Return timm's MViTv2 made adaptive: see `Adaptive.of`.

        The tables of its position embedding are folded.

        Raises:
            VitrailError: strides do not divide the model's image, or it has a class token.
        """
        weights = model.state_dict()
        adaptive = super().of(model, selection, inplace, **modules)
        adaptive.load_state_dict(weights)
        return adaptive

    def make_adaptive(self, selection: str, size: Size | None = None) -> None:
        """Complete a model that timm has built, with new tables.

        `size` is the (height, width) of the images, by default that of the model.
        """
        attentions = (block.attn for stage in self.stages for block in stage.blocks)
        plain = self.cls_token is None and self.pos_embed is None
        if not plain or not all(map(_can_be_adaptive, attentions)):
            raise VitrailError(
                "this MViTv2 cannot be made shift-equivariant: take one without a class token "
                "(mvitv2_small, not mvitv2_small_cls) and without use_abs_pos, and leave "
                "pool_first, mode, kernel_qkv and rel_pos_type of its configuration as they are"
            )
        if size is None:  # of the first stage's output
            rows, columns = self.stages[0].feat_size
            reduction = self.feature_info[0]["reduction"]
            size = (rows * reduction, columns * reduction)
        stride = multiple = int(self.patch_embed.proj.stride[0])
        tokens = (size[0] // stride, size[1] // stride)
        for stage, info in zip(self.stages, self.feature_info, strict=True):
            multiple = math.lcm(multiple, stride * stage_period(stage))
            stride = info["reduction"]
        self._check_fit(size, multiple)
        super().make_adaptive(selection)
        self.img_size, self.size_multiple = size, multiple
        self.init_non_persistent_buffers()
        self.later_grid = self.grid.behind_anchor()
        for stage in self.stages:
            tokens = set_class(stage, AdaptiveStage).make_adaptive(tokens, self.later_grid)

    def init_non_persistent_buffers(self) -> None:
        """Make the tables for the tokeniser's scores, which are in no state dict."""
        prepare_correlation(self.patch_embed.proj)

    @staticmethod
    def _check_fit(size: Size, multiple: int) -> None:
        if size[0] % multiple or size[1] % multiple:
            raise VitrailError(
                f"img_size {size[0]}x{size[1]} does not fit the strides of A-MViTv2: "
                f"use multiples of {multiple}"
            )

    def set_input_size(self, img_size: int | Size) -> None:
        """Change the size of images, and resize the tables of the position embedding.

        Raises:
            VitrailError: the strides do not divide `img_size`.
        """
        size, trained = cast(Size, to_2tuple(img_size)), self.state_dict()
        self._check_fit(size, self.size_multiple)
        self.make_adaptive(self.grid.name, size)
        self.load_state_dict(adaptive_filter(trained, self))
        update_model_input_size(self, size)

    def _stages(self, images: Tensor) -> Iterator[tuple[Tensor, Tensor, Frame]]:
        require_size(images, self.img_size)
        conv = self.patch_embed.proj
        x, phase = self.grid(images, conv)
        frame = Frame.of(images).sampled(phase, conv.stride[0])
        for index, stage in enumerate(self.stages):
            grid = self.later_grid if index else self.grid
            offset = grid.choose_stage_offset(x, stage.period, anchored=index == 0)
            if offset is not None:
                frame = frame.rolled(offset)
                x = roll(x, offset) if index else tokens_at(images, conv, frame)
            x, frame = stage(x, frame)
            yield x.flatten(1, 2), x, frame


def _can_be_adaptive(attn: Any) -> bool:
    return (
        isinstance(attn, MultiScaleAttention)
        and (attn.mode, attn.rel_pos_type) == ("conv", "spatial")
        and None not in (attn.pool_q, attn.pool_k)
    )


def adaptive_filter(state_dict: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Adapt weights of a plain MViTv2, such as published ones, or of ours to an adaptive model.

    Tables of another image size are resized. Those of a plain model are resized as timm does, and
    folded when they are loaded. Those of an adaptive model are resized circularly.
    """
    if "stages.0.blocks.0.norm1.weight" not in state_dict:
        state_dict = checkpoint_filter_fn(state_dict, model)
    tables = {name: len(table) for name, table in model.state_dict().items() if "rel_pos" in name}
    if all(len(state_dict[name]) == length for name, length in tables.items()):
        return state_dict
    resize = _resized_circle if "_extra_state" in state_dict else _resized
    resized = {name: resize(state_dict[name], size) for name, size in tables.items()}
    return {**state_dict, **resized}


def _resized(table: Tensor, period: int) -> Tensor:
    return functional.interpolate(table.mT[None], size=2 * period - 1, mode="linear")[0].mT


def _resized_circle(table: Tensor, period: int) -> Tensor:
    """Interpolate a table of circular distances to `period` rows; row 0 is kept."""
    closed = torch.cat([table, table[:1]]).mT[None]
    resized = functional.interpolate(closed, size=period + 1, mode="linear", align_corners=True)
    return resized[0, :, :-1].mT


SIZES = ("tiny", "small", "base", "large")  # timm's others have a class token
default_cfgs = default_cfgs_of({f"a_mvitv2_{size}": f"mvitv2_{size}" for size in SIZES})


def _adaptive(name: str, pretrained: bool, **options: Any) -> nn.Module:
    cfg, kwargs = configured(options)
    kwargs = {"model_cfg": cfg, "pretrained_filter_fn": adaptive_filter, **kwargs}
    return build(AdaptiveMultiScaleVit, name, pretrained, **kwargs)


@register_model
def a_mvitv2_tiny(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """A-MViTv2-T, the paper's; takes the fields of timm's `MultiScaleVitCfg`, too."""
    return _adaptive("a_mvitv2_tiny", pretrained, **{**TINY, **kwargs})


@register_model
def a_mvitv2_small(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """A-MViTv2-S."""
    return _adaptive("a_mvitv2_small", pretrained, **{**SMALL, **kwargs})


@register_model
def a_mvitv2_base(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """A-MViTv2-B."""
    return _adaptive("a_mvitv2_base", pretrained, **{**BASE, **kwargs})


@register_model
def a_mvitv2_large(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """A-MViTv2-L."""
    return _adaptive("a_mvitv2_large", pretrained, **{**LARGE, **kwargs})
