"""A-CvT: CvT with the shift paper's modules (shift, Sec. 4, Sec. 5.1).

All of A-CvT in one file, equation by equation: examples/a_cvt_in_one_file.py.

CvT has two kinds of strided convolutions: those of the embeddings, and those of keys and values.
Both can sample the phase of the largest energy, by A-token and by adaptive polyphase sampling
(shift, Eq. 13-14, Eq. 23: `selection.strongest_tokens`). The paper does not say how keys and values
choose their grid; here they do as A-PMerge does. All convolutions are circular. `cvt` is the plain
model; `selection` has the choices, `polyphase` the arg max and the sampling, `energies` the scores
of the grids of an embedding, `geometry` where tokens sit in an image.

``"per_layer"`` scores embeddings before their norm. In each attention it convolves keys and values
at every token, and samples both at the strongest phase of the keys. ``"per_stage"`` selects once
per stage: the tokens are rolled so that the strongest phase, modulo a common multiple of the
strides that follow, comes first. Shifts of the image then move the tokens only by multiples of
these strides, with which circular convolutions commute, so keys, values and the next embedding all
take the first phase. In the first stage the image is also rolled to an anchor and tokenised again
(`selection.tokens_at`), so that all shifts of an image give the same bits.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from timm.models import generate_default_cfgs, register_model
from torch import Tensor, nn

from vitrail.shift.cvt import CVT_13, CVT_21, DEFAULT_CFG, ConvAttention, CvT, create
from vitrail.shift.energies import prepare_correlation
from vitrail.shift.geometry import Frame
from vitrail.shift.polyphase import roll, sample
from vitrail.shift.selection import (
    Adaptive,
    FixedSelection,
    Selection,
    set_class,
    strongest_tokens,
    tokens_at,
)

for _node in ("roll", "tokens_at"):  # one node each of a traced graph
    torch.fx.wrap(_node)


class AdaptiveConvAttention(ConvAttention):
    """Attention to the strongest phase of the keys, or with "per_stage" to the first phase."""

    grid: FixedSelection

    def keys_and_values(self, feature_map: Tensor, padding: int) -> tuple[Tensor, Tensor]:
        """Return keys and values of a padded map ``(B, H, W, C)``, both at the keys' phase."""
        if not self.grid.per_operation:
            return super().keys_and_values(feature_map, padding)
        dense = self.key.convolve(feature_map, padding, stride=1)
        key, phase = strongest_tokens(dense, self.key.conv, self.grid.in_order)
        value = self.value.convolve(feature_map, padding, stride=1)
        return key, sample(value, phase, self.value.conv.stride[0])


class AdaptiveCvT(Adaptive, CvT):
    """CvT made truly shift-equivariant, by default A-CvT-13.

    The arguments are those of `CvT`, without `padding_mode`, and `selection`, which says how grids
    are chosen (see the module).

    Raises:
        VitrailError: `img_size` does not fit, or `selection` is unknown.
    """

    def __init__(self, *, selection: Selection = "per_layer", **kwargs: Any) -> None:
        super().__init__(padding_mode="circular", **kwargs)
        self.make_adaptive(selection)

    def make_adaptive(self, selection: str) -> None:
        """Complete a model that `CvT` has built: see `Adaptive`."""
        super().make_adaptive(selection)
        self.set_padding_mode("circular")
        self.init_non_persistent_buffers()
        self.later_grid = self.grid.behind_anchor()
        for block in (block for stage in self.stages for block in stage.blocks):
            set_class(block.attn, AdaptiveConvAttention).grid = self.later_grid
        # Strides of what reads a stage's tokens: its keys and values, and the next embedding.
        ahead = (*self.strides[1:], 1)
        self.periods = [math.lcm(*pair) for pair in zip(self.kv_strides, ahead, strict=True)]

    def init_non_persistent_buffers(self) -> None:
        """Make the tables for the tokeniser's scores, which are in no state dict."""
        prepare_correlation(self.stages[0].embed.conv)

    def _embed(self, index: int, x: Tensor, frame: Frame) -> tuple[Tensor, Frame]:
        chosen = self.later_grid if index else self.grid
        if index == 0 or chosen.per_operation:
            conv = self.stages[index].embed.conv
            images = x.permute(0, 3, 1, 2)
            tokens, phase = chosen(images, conv)
            frame = frame.sampled(phase, self.strides[index])
        else:  # the tokens of the stage before are aligned already
            tokens, frame = super()._embed(index, x, frame)
        offset = chosen.choose_stage_offset(tokens, self.periods[index], anchored=index == 0)
        if offset is not None:
            frame = frame.rolled(offset)
            tokens = roll(tokens, offset) if index else tokens_at(images, conv, frame)
        return tokens, frame


default_cfgs = generate_default_cfgs({"a_cvt_13": DEFAULT_CFG, "a_cvt_21": DEFAULT_CFG})


@register_model
def a_cvt_13(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """A-CvT-13: the parameters of CvT-13 (shift, Sec. 5.1)."""
    return create(AdaptiveCvT, "a_cvt_13", pretrained, **{**CVT_13, **kwargs})


@register_model
def a_cvt_21(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """A-CvT-21: the parameters of CvT-21."""
    return create(AdaptiveCvT, "a_cvt_21", pretrained, **{**CVT_21, **kwargs})
