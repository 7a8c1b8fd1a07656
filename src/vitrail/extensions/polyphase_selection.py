"""Choices of grids to compare with the paper's (`selection`), on Swin; the paper lacks them.

    timm.create_model("polyphase_swin_tiny_patch4_window7_224", selection="lps")

Four choose among the grids that a strided operation may sample, its *polyphase components*:

- `ApsGrid`, ``"aps"``, adaptive polyphase sampling (Chaman and Dokmanic, "Truly shift-invariant
  convolutional neural networks", CVPR 2021): the component with the largest l2 norm. A-token and
  A-PMerge are this choice. Windows of attention stay at the origin of the chosen grid, as APS knows
  none, so that tokenisation and merging are equivariant and the model is not invariant.
- `AnchoredGrid`, ``"anchoring"``, polyphase anchoring (Ding et al., "Reviving shift equivariance in
  vision transformers", arXiv 2306.07470, Sec. 3.2): as APS, of the input of each operation and
  not of its output, with the sides of the windows as the stride of attention. Invariant.
- `LearnedGrid`, ``"lps"``, learnable polyphase sampling (Rojas-Gomez et al., NeurIPS 2022,
  arXiv 2210.08001): a small convolutional network scores the components. Windows are the paper's.
  Invariant.
- `DrawnGrid`, ``"drawn"``, ours: the paper's choice, drawn by a softmax of its scores in training.
  Invariant in evaluation.

Two are the paper's, as it prints them (shift, Eq. 19). Neither rolls the image to an anchor, so
float32 logits of shifted images may differ by rounding:

- `LayerGrid`, ``"every_layer"``, chooses the offset of windows again in every attention layer.
  Invariant.
- `PrintedGrid`, ``"printed"``, does the same, without a rule for ties: of grids with equal scores
  the first in memory is taken. Not invariant: the single window of Swin-T's last stage has the same
  energy at every offset.

One does not choose:

- `LowPassGrid`, ``"low_pass"``, blurs before it samples the first grid (Zhang, "Making
  convolutional networks shift-invariant again", ICML 2019). Not invariant. With timm's attention
  masks, ``attention_mask=True``, all other parts are those of plain Swin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from timm.models import register_model, register_notrace_module
from timm.models.swin_transformer import checkpoint_filter_fn, swin_tiny_patch4_window7_224
from torch import Tensor, nn
from torch.nn import functional

from vitrail.shift.energies import (
    correlation_energies,
    correlation_is_cheaper,
    dense_energies,
    merged_patches,
    overlapping_patches,
)
from vitrail.shift.features import build, default_cfgs_of
from vitrail.shift.geometry import Size, circular_conv, roll_image, zero_offsets
from vitrail.shift.polyphase import (
    components,
    full_precision,
    polyphase_energies,
    roll,
    sample,
    strongest_grid,
    token_norms,
)
from vitrail.shift.selection import (
    MERGED,
    FixedSelection,
    PerLayerSelection,
    Projection,
    strongest_tokens,
    window_energies,
    window_offset,
)
from vitrail.shift.swin import AdaptiveSwin, converted

TEMPERATURE = 0.3
"""Temperature of the softmax in `DrawnGrid`, for scores with a standard deviation of 1."""
HIDDEN = 16
"""Channels between the two convolutions that score a component in `LearnedGrid`."""


@register_notrace_module
class ApsGrid(PerLayerSelection):
    """APS: the component with the largest l2 norm, of every strided operation's output.

    Source: Chaman and Dokmanic, CVPR 2021, with p = 2. Equal norms are ordered as by
    `PerLayerSelection`.
    """

    name = "aps"
    anchors = False

    def choose_windows(self, x: Tensor, window: Size, merged: bool, anchored: bool) -> None:  # type: ignore[override]
        """Return None: windows begin at the origin of the grid."""


@register_notrace_module
class AnchoredGrid(FixedSelection):
    """Polyphase anchoring: the component with the largest l2 norm, of every operation's input.

    The input is rolled so that this component comes first; the plain operation follows.

    Source: Ding et al., arXiv 2306.07470, Sec. 3.2. Equal norms are ordered by their arrangement.
    """

    name = "anchoring"
    per_operation = True

    def forward(self, x: Tensor, conv: nn.Conv2d) -> tuple[Tensor, Tensor]:
        """Tokenise from the strongest component of the pixels: see `FixedSelection`."""
        stride = conv.stride[0]
        phase = strongest_component(x.permute(0, 2, 3, 1), (stride, stride))
        return circular_conv(roll_image(x, phase), conv).permute(0, 2, 3, 1), phase

    def choose_windows(self, x: Tensor, window: Size, merged: bool, anchored: bool) -> Tensor:
        """Lay windows from the strongest component, whose stride is a window.

        See `FixedSelection`.
        """
        return strongest_component(x, window)

    def merge_patches(self, x: Tensor, project: Projection) -> tuple[Tensor, Tensor]:
        """Merge from the strongest component of the tokens: see `FixedSelection`."""
        phase = strongest_component(x, (MERGED, MERGED))
        return project(merged_patches(roll(x, phase))), phase


@torch.no_grad()
def strongest_component(x: Tensor, stride: Size) -> Tensor:
    """Return the phase ``(B, 2)`` of the component of ``(B, H, W, C)`` with the largest l2 norm."""
    with full_precision(x):
        return strongest_grid(components(token_norms(x).square(), stride))


@register_notrace_module
class LearnedGrid(FixedSelection):
    """LPS: the component to which a learned network gives the largest score.

    A component k of the output is chosen with probability softmax(f(component k)), where f are two
    circular convolutions and a mean over tokens and channels. In training it is drawn by a
    Gumbel-softmax (temperature 1), whose gradient reaches f; in evaluation the largest score wins.
    The authors blend components in training, by weights that harden; here one is taken, and the
    gradient is that of the weights (straight through), so that tokens lie on one grid.

    Source: Rojas-Gomez et al., NeurIPS 2022, arXiv 2210.08001.
    """

    name = "lps"
    per_operation = True

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.ModuleDict()

    def fit(self, widths: Sequence[int]) -> None:
        """Make the networks that score outputs with these numbers of channels; call it once."""
        for width in widths:
            self.scores[str(width)] = nn.Sequential(
                nn.Conv2d(width, HIDDEN, 3, padding=1, padding_mode="circular"),
                nn.ReLU(),
                nn.Conv2d(HIDDEN, HIDDEN, 3, padding=1, padding_mode="circular"),
            )

    def forward(self, x: Tensor, conv: nn.Conv2d) -> tuple[Tensor, Tensor]:
        """Tokenise on the grid with the largest score: see `FixedSelection`."""
        dense = circular_conv(x, conv, stride=1).permute(0, 2, 3, 1)
        return self.sample(dense, conv.stride[0])

    def choose_windows(self, x: Tensor, window: Size, merged: bool, anchored: bool) -> Tensor:
        """Choose where attention windows begin as the paper does: see `FixedSelection`."""
        return window_offset(x, window, anchored)

    def merge_patches(self, x: Tensor, project: Projection) -> tuple[Tensor, Tensor]:
        """Merge on the grid with the largest score: see `FixedSelection`."""
        return self.sample(project(overlapping_patches(x)), MERGED)

    def sample(self, dense: Tensor, stride: int) -> tuple[Tensor, Tensor]:
        """Keep one component of ``(B, H, W, D)``: ``(B, H / s, W / s, D)``, and its phase."""
        batch, height, width, channels = dense.shape
        parts = dense.view(batch, height // stride, stride, width // stride, stride, channels)
        components = parts.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)  # (B, s^2, H / s, W / s, D)
        with full_precision(dense):
            network = cast(nn.Sequential, self.scores[str(channels)])
            maps = (
                components.flatten(0, 1)
                .permute(0, 3, 1, 2)
                .to(cast(nn.Conv2d, network[0]).weight.dtype)
            )
            scores = network(maps).mean(dim=(1, 2, 3)).view(batch, stride**2)
            if self.training:
                weights = functional.gumbel_softmax(scores, hard=True)
                index = weights.argmax(dim=1)
            else:
                index = scores.argmax(dim=1)
        phase = torch.stack([index // stride, index % stride], dim=1)
        if self.training:
            return torch.einsum("bk,bkhwd->bhwd", weights.to(dense.dtype), components), phase
        return sample(dense, phase, stride), phase


@register_notrace_module
class DrawnGrid(PerLayerSelection):
    """The paper's choice in evaluation; in training each choice is drawn by its scores.

    A grid is drawn with probability softmax(z / T), where z are the paper's scores less their
    mean over the grids, over their standard deviation, and T = `TEMPERATURE`. So a model is
    trained on grids that a small change of the image might choose.
    """

    name = "drawn"

    def forward(self, x: Tensor, conv: nn.Conv2d) -> tuple[Tensor, Tensor]:
        """Tokenise a grid that is drawn by the energies (shift, Eq. 14): see `FixedSelection`."""
        if not self.training:
            return super().forward(x, conv)
        with torch.no_grad(), full_precision(x):
            cheaper = correlation_is_cheaper(x, conv)
            phase = drawn((correlation_energies if cheaper else dense_energies)(x, conv))
        return circular_conv(roll_image(x, phase), conv).permute(0, 2, 3, 1), phase

    def choose_windows(self, x: Tensor, window: Size, merged: bool, anchored: bool) -> Tensor:
        """Draw where windows begin by the scores (shift, Eq. 20): see `FixedSelection`."""
        if not self.training:
            return super().choose_windows(x, window, merged, anchored)
        with torch.no_grad(), full_precision(x):
            return drawn(polyphase_energies(window_energies(x, window).square(), window))

    def merge_patches(self, x: Tensor, project: Projection) -> tuple[Tensor, Tensor]:
        """Merge a grid that is drawn by the energies (shift, Eq. 23): see `FixedSelection`."""
        if not self.training:
            return super().merge_patches(x, project)
        dense = project(overlapping_patches(x))
        with torch.no_grad(), full_precision(x):
            energies = token_norms(dense).square()
            phase = drawn(polyphase_energies(energies, (MERGED, MERGED)))
        return sample(dense, phase, MERGED), phase


def drawn(scores: Tensor) -> Tensor:
    """Draw an index ``(B, 2)`` into ``(B, P, Q)`` by a softmax of the scores: see `DrawnGrid`."""
    flat = scores.flatten(1).float()
    spread = flat.std(dim=1, correction=0, keepdim=True)
    z = (flat - flat.mean(dim=1, keepdim=True)) / spread.where(spread > 0, 1)
    place = torch.multinomial((z / TEMPERATURE).softmax(dim=1), 1)[:, 0]
    return torch.stack([place // scores.shape[2], place % scores.shape[2]], dim=1)


@register_notrace_module
class LayerGrid(PerLayerSelection):
    """The paper's choice, with an offset of the windows in every attention layer (shift, Eq. 19).

    Energies are those of the tokens before the layer's norm, as behind it they are nearly equal.
    """

    name = "every_layer"
    anchors = False
    per_block = True


@register_notrace_module
class PrintedGrid(LayerGrid):
    """`LayerGrid` without a rule for ties: the first of the largest scores (shift, Eq. 14, 20)."""

    name = "printed"

    def __init__(self) -> None:
        super().__init__(in_order=True)

    def forward(self, x: Tensor, conv: nn.Conv2d) -> tuple[Tensor, Tensor]:
        """Tokenise on the first grid with the most energy: see `FixedSelection`."""
        dense = circular_conv(x, conv, stride=1).permute(0, 2, 3, 1)
        return strongest_tokens(dense, conv, self.in_order)


@register_notrace_module
class LowPassGrid(FixedSelection):
    """The first grid of tokens that are blurred before they are sampled (Zhang, ICML 2019).

    The blur of stride s has the weights s - |i|, over s^2, of pixels up to s - 1 away along each
    axis: those of BlurPool, [1, 2, 1] / 4, at stride 2. A tokeniser is linear, so there the image
    is blurred. Merging normalises each patch first, so all patches are merged, then blurred.
    """

    name = "low_pass"
    per_operation = True

    def forward(self, x: Tensor, conv: nn.Conv2d) -> tuple[Tensor, Tensor]:
        """Tokenise the blurred image: see `FixedSelection`."""
        return super().forward(blurred(x, conv.stride[0]), conv)

    def merge_patches(self, x: Tensor, project: Projection) -> tuple[Tensor, Tensor]:
        """Blur the merged patches of all grids and keep the first grid: see `FixedSelection`."""
        dense = blurred(project(overlapping_patches(x)).permute(0, 3, 1, 2), MERGED)
        return dense[:, :, ::MERGED, ::MERGED].permute(0, 2, 3, 1).contiguous(), zero_offsets(x)


def blurred(x: Tensor, stride: int) -> Tensor:
    """Blur ``(B, C, H, W)`` circularly, before sampling with `stride`: see `LowPassGrid`."""
    channels, reach = x.shape[1], stride - 1
    taps = stride - torch.arange(-reach, stride, device=x.device).abs()
    weight = (taps.to(x) / stride**2).expand(channels, 1, 1, -1)
    padded = functional.pad(x, (reach,) * 4, mode="circular")
    rows = functional.conv2d(padded, weight, groups=channels)
    return functional.conv2d(rows, weight.mT, groups=channels)


OTHER_GRIDS: dict[str, type[FixedSelection]] = {
    grid.name: grid
    for grid in (
        *(ApsGrid, AnchoredGrid, LearnedGrid, DrawnGrid),
        *(LayerGrid, PrintedGrid, LowPassGrid),
    )
}


class PolyphaseSwin(AdaptiveSwin):
    """Swin with a choice of `OTHER_GRIDS`: see `vitrail.shift.swin.AdaptiveSwinBase`.

    With ``"lps"`` it has parameters that plain Swin lacks, below ``grid``.
    """

    choices = OTHER_GRIDS

    def make_adaptive(self, selection: str, *modules: bool, **named: bool) -> None:
        """Complete what timm has built: see `vitrail.shift.swin.AdaptiveSwinBase`."""
        super().make_adaptive(selection, *modules, **named)
        if isinstance(self.grid, LearnedGrid):
            self.grid.fit([stage["num_chs"] for stage in self.feature_info])


NAME = "polyphase_swin_tiny_patch4_window7_224"
default_cfgs = default_cfgs_of({NAME: "swin_tiny_patch4_window7_224"})


@register_model
def polyphase_swin_tiny_patch4_window7_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """Make Swin-T with another choice of grids, by default that of APS."""
    model_type = converted(PolyphaseSwin, swin_tiny_patch4_window7_224)
    options = {"selection": "aps", "pretrained_filter_fn": checkpoint_filter_fn, **kwargs}
    return build(model_type, NAME, pretrained, **options)
