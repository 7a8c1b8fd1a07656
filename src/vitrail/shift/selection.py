"""How a model chooses its grids (shift, Sec. 4): a module that the model holds.

A tokeniser is a strided convolution (Eq. 5-6: `circular_conv`). With circular padding its grid can
start at any of stride^2 pixels m (the paper's L, in 2-D), and a shift of the image only exchanges
and rolls these grids, which are `polyphase.components` (Lemma 1, Eq. 15). The paper takes the grid
whose tokens have the largest F (Eq. 14). It asks only that F does not change with a shift, and
leaves open which function it is. Here F is the energy of the tokens, the sum of ||X E + b||^2, as
Fig. 1 speaks of the highest energy; the bias b of the convolution is not in the paper's equations.
Patch merging (Eq. 10: `merged_patches`) is a strided convolution too (Claim 3). The paper computes
it densely, at every token, and samples the output's strongest polyphase component (APS, Eq. 21-23).

- `PerLayerSelection`, ``selection="per_layer"``, does so for every strided operation. It computes
  the energies of a tokeniser without the tokens (`energies.correlation_energies`) where this is
  cheaper, as in the first layer of the paper's four models (`energies.correlation_is_cheaper`).
- `PerStageSelection`, ``"per_stage"``, scores a tokeniser by F = sum of <a, token>^2 for one
  direction a. Any function of the tokens that ignores their order can be F (shift, Claim 1), and
  this one needs one channel instead of D. A LayerNorm after the tokeniser removes the mean of the
  channels, so the entries of a sum to zero. A choice at the beginning of a stage, by the energy of
  its tokens, determines all later grids of the stage, also that of the merging after its blocks.
  (The paper's A-PMerge chooses after the blocks, by the merged tokens.) The tokens are rolled once;
  after that every later grid of the stage starts at token 0.
- `FixedSelection`, ``"fixed"``, begins every grid at the first pixel and token. It is not
  equivariant, and shows what choosing costs.

A-WSA chooses the grid of attention windows by energy as well (shift, Sec. 4, Eq. 17-20). The energy
of a window is the mean l2 norm of its tokens. A grid of windows is scored by G of its windows'
energies; the paper leaves G open, too. If G is the mean, all grids have the same score. If G is the
maximum, several grids can have the same score: on a uniform background whose tokens have a larger
norm than those of the object, every window without the object has the same, largest energy. The arg
max then picks a grid by its place in memory. So G is the sum of squares, which has the same arg max
as the l2 norm. Two grids can still have the same score, for example when an object occurs twice.
Then they are ordered by where all tokens are (`polyphase.tie_break_scores`).

A *phase* is the row and the column, each below the stride, at which a grid begins. An *offset* is
the exponent of S, up to the size of the map: the tokens are rolled by it, so it also says which
token comes first.

In the first stage a model can also choose an *anchor*, one token of the chosen grid, and roll the
image to it: then the tokens of all shifts of an image are the same, in the same order
(`tokens_at`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self, TypeVar, cast

import torch
from timm.models import register_notrace_module
from torch import Tensor, nn

from vitrail.errors import VitrailError, require_known
from vitrail.shift.certificate import (
    correlation_error,
    gamma_n,
    grid_margin,
    margin,
    places_error,
    tie_break_margin,
)
from vitrail.shift.energies import (
    correlation_energies,
    correlation_is_cheaper,
    merged_patches,
    overlapping_patches,
    projection_energies,
    projection_errors,
)
from vitrail.shift.geometry import Frame, Size, circular_conv, roll_image, zero_offsets
from vitrail.shift.polyphase import (
    FIXED_POINT,
    break_ties,
    components,
    fixed_point,
    full_precision,
    polyphase_energies,
    roll,
    sample,
    strongest,
    strongest_grid,
    strongest_phase,
    tie_break_scores,
    token_norms,
)


@torch.no_grad()
def window_energies(tokens: Tensor, window: Size) -> Tensor:
    """Return the mean token norm of the window that begins at each token (shift, Eq. 17-18).

    For figures, statistics and `vitrail.extensions.polyphase_selection`; models compute the same
    numbers in `_scores`.

    Args:
        tokens: ``(B, H, W, C)``, not normalised: after LayerNorm norms are all alike.
        window: rows and columns.

    Returns:
        ``(B, H, W)``, relative to the largest norm of each sample.
    """
    norms = token_norms(tokens)
    return _window_means(fixed_point(norms), window, norms.dtype)


def _window_means(units: Tensor, window: Size, dtype: torch.dtype) -> Tensor:
    """Return the energy of the window that begins at each token (shift, Eq. 17-18).

    `units` are token norms by `fixed_point`: integers, in steps of 2^-40 of the largest norm of the
    sample. So the means are relative to that norm, which changes no arg max.
    """
    rows, columns = window
    sums = _running_sum(_running_sum(units, columns).mT, rows).mT
    return sums.to(dtype) / (FIXED_POINT * rows * columns)  # Eq. 18 of all m and k


def _running_sum(x: Tensor, length: int) -> Tensor:
    """Return the sum of `length` integers from each entry on, circularly along the last axis."""
    before = torch.cat([x.new_zeros(*x.shape[:-1], 1), x, x[..., : length - 1]], dim=-1).cumsum(-1)
    return before[..., length:] - before[..., :-length]


def window_offset(tokens: Tensor, window: Size, anchored: bool = False) -> Tensor:
    """Choose the offset of the grid of windows (shift, Eq. 20, Claim 2).

    Args:
        tokens: ``(B, H, W, C)``; H and W are multiples of `window`.
        window: rows and columns.
        anchored: also choose one window of that grid, so that the tokens of a shifted image, rolled
            by its offset, are the rolled tokens of the image in the same order.

    Returns:
        int64 ``(B, 2)``, below `window`, or if anchored below ``(H, W)``. After a roll by this
        offset, windows begin at token 0.
    """
    return window_offsets(tokens, [window], anchored)[0]


@torch.no_grad()
def window_offsets(
    tokens: Tensor, windows: Sequence[Size], anchored: bool = False, in_order: bool = False
) -> list[Tensor]:
    """Return `window_offset` for windows of several sizes; token norms are computed only once.

    `in_order` is true after the anchor, where all shifts of an image give the same tokens in the
    same order. Then no tie has to be broken, and the first of the largest scores wins.
    """
    with full_precision(tokens):
        norms = token_norms(tokens)
    units = fixed_point(norms)
    if in_order:
        return [strongest(_scores(norms, units, window)) for window in windows]
    places, offsets = tie_break_scores(norms), []
    for window in windows:
        scores = break_ties(_scores(norms, units, window), _ties(places, window))
        if anchored:
            scores = _anchors(scores, places)
        offsets.append(strongest(scores))  # m* (Eq. 20)
    return offsets


def _scores(norms: Tensor, units: Tensor, window: Size) -> Tensor:
    """Return the score of each grid of windows, ``(B, *window)``.

    Source: shift, Eq. 17-18, by running sums. G of Eq. 20 is the sum of v^2: our choice.
    """
    means = _window_means(units, window, norms.dtype)
    return polyphase_energies(means.square(), window)  # G(v^(m)) of all m


def _ties(places: Tensor, window: Size) -> Tensor:
    """Return the numbers that order grids of windows with equal scores, ``(B, *window)``.

    `places` are the `polyphase.tie_break_scores` of the tokens, ``(B, H, W)``.
    """
    return components(places, window).amax(dim=(3, 4)) - places.mean(dim=(1, 2))[:, None, None]


def _anchors(scores: Tensor, places: Tensor) -> Tensor:
    """Return numbers ``(B, H, W)`` that order the windows of the best grid; others have -inf."""
    wins = scores == scores.amax(dim=(1, 2), keepdim=True)
    by_grid = components(places, (wins.shape[1], wins.shape[2]))
    return places.where(wins.repeat(1, *by_grid.shape[3:]), -torch.inf)


@register_notrace_module
class WindowChoice(nn.Module):
    """`window_offsets`, as a module that `vitrail.measures.selection_margins` can watch."""

    def forward(
        self,
        tokens: Tensor,
        windows: Sequence[Size],
        anchored: bool = False,
        in_order: bool = False,
    ) -> list[Tensor]:
        """Return the offset ``(B, 2)`` of the grid of windows of each size."""
        return window_offsets(tokens, windows, anchored, in_order)

    @torch.no_grad()
    def margin(
        self,
        tokens: Tensor,
        windows: Sequence[Size],
        anchored: bool = False,
        in_order: bool = False,
    ) -> tuple[Tensor, bool]:
        """Return the smallest margin of the choices ``(B,)``, and whether tokens are anchored.

        `in_order` has no effect: no margin is asked for after the anchor. Norms are summed as
        integers, so rounding affects only the order of equal scores, and the anchor.
        """
        with full_precision(tokens):
            norms = token_norms(tokens)
        units, places, place_error = (
            fixed_point(norms),
            tie_break_scores(norms),
            places_error(norms),
        )
        mean = places.mean(dim=(1, 2))
        tie_error = place_error + gamma_n(places[0].numel(), places.dtype) * mean
        margins = []
        for window in windows:
            scores, ties = _scores(norms, units, window), _ties(places, window)
            margins.append(tie_break_margin(scores, torch.zeros_like(mean), ties, tie_error))
            if anchored:
                anchors = _anchors(break_ties(scores, ties), places)
                margins.append(margin(anchors.flatten(1), place_error))
        return torch.stack(margins).amin(dim=0), anchored


def size_multiples(strides: Sequence[int], windows: Sequence[Size]) -> Size:
    """Return the height and width, in pixels, whose multiples the windows of all stages divide.

    `strides` are the strides of the stages in pixels, `windows` their windows in tokens.
    """
    pixels = [[s * side for side in window] for s, window in zip(strides, windows, strict=True)]
    rows, columns = zip(*pixels, strict=True)
    return math.lcm(*rows), math.lcm(*columns)


def require_windows(size: Size, strides: Sequence[int], windows: Sequence[Size]) -> None:
    """Check that the windows of every stage divide images.

    Args:
        size: (height, width) of the images in pixels.
        strides: stride of each stage in pixels.
        windows: window (rows, columns) of each stage in tokens.

    Raises:
        VitrailError: the windows of a stage do not divide the images.
    """
    high, wide = size_multiples(strides, windows)
    if size[0] % high == size[1] % wide == 0:
        return
    rows, columns = (max(sides) for sides in zip(*windows, strict=True))
    raise VitrailError(
        f"images of {size[0]}x{size[1]} pixels do not fit windows of {rows}x{columns} tokens"
        f"{'' if len(set(windows)) == 1 else f' (by stage: {windows})'}: "
        + (
            f"use sides that are multiples of {strides[-1]} pixels, with a window_size that "
            "divides the tokens of every stage's sides, "
            if size[0] % strides[-1] or size[1] % strides[-1]
            else f"build the whole model with img_size=({size[0]}, {size[1]}), without "
            "dynamic_img_size, and a window_size that divides the tokens of every stage's sides, "
            f"here {size[0] // strides[-1]} and {size[1] // strides[-1]} in the last stage (of a "
            "model that exists already: set_input_size(img_size, window_size=...)), "
        )
        + f"or, with these windows, use multiples of {high}x{wide} pixels, for several sizes with "
        "dynamic_img_size=True"
    )


Selection = Literal["per_layer", "per_stage", "fixed", "paper", "fast", "none"]
ALIASES = {"paper": "per_layer", "fast": "per_stage", "none": "fixed"}
"""Older names of the selections, which configurations and weights still have."""
RECORDED = {word: older for older, word in ALIASES.items()}
Projection = Callable[[Tensor], Tensor]
Module = TypeVar("Module", bound=nn.Module)
MERGED = 2  # tokens of each axis that are merged into one

for _node in ("roll", "sample", "strongest_phase"):  # nodes of a traced graph, like selections
    torch.fx.wrap(_node)


@register_notrace_module
class FixedSelection(nn.Module):
    """Grids that begin at the first pixel and token; the interface of all choices."""

    name: str = "fixed"
    per_operation = False  # whether every strided operation chooses, not only a stage's first
    anchors = False  # whether models compute their first tokens again at the anchor: `tokens_at`
    per_block = False  # whether every attention layer lays its windows, not only a stage's first

    def __init__(self, in_order: bool = False) -> None:
        super().__init__()
        self.in_order = in_order  # whether the tokens are in the anchor's order: see `polyphase`

    def behind_anchor(self) -> FixedSelection:
        """Return the selection for the layers after the anchor, where no ties have to be broken."""
        return type(self)(in_order=True) if self.anchors else self

    def forward(self, x: Tensor, conv: nn.Conv2d) -> tuple[Tensor, Tensor]:
        """Tokenise one grid; here, the grid that begins at the first pixel (shift, Eq. 5-6).

        ``(B, C, H, W)``, height and width multiples of the stride, gives channels-last tokens
        ``(B, H / s, W / s, D)`` and the phase ``(B, 2)`` of the grid.
        """
        return circular_conv(x, conv).permute(0, 2, 3, 1), zero_offsets(x)

    def choose_windows(
        self, x: Tensor, window: Size, merged: bool, anchored: bool
    ) -> Tensor | None:
        """Choose where attention windows begin (shift, Eq. 20): see `selection.window_offset`.

        `merged` is true if patch merging follows. The result is None if windows begin at the first
        token.
        """
        return None

    def choose_stage_offset(self, x: Tensor, period: int, anchored: bool) -> Tensor | None:
        """Return the offset ``(B, 2)`` at which a stage without windows begins.

        All strides of the stage divide `period`. The result is None for the first token.
        """
        return None

    def merge_patches(self, x: Tensor, project: Projection) -> tuple[Tensor, Tensor]:
        """Merge one grid of 2x2 patches (shift, Eq. 23, Sec. A2.1).

        Args:
            x: tokens ``(B, H, W, C)``, H and W even.
            project: ``(..., 4C)`` to ``(..., D)``.

        Returns:
            ``(B, H / 2, W / 2, D)`` and the phase ``(B, 2)`` of the grid.
        """
        return project(merged_patches(x)), zero_offsets(x)  # PMerge (Eq. 10)


class PerLayerSelection(FixedSelection):
    """Each strided operation takes the grid of the most energy, as in the paper; ties: our rule."""

    name = "per_layer"
    per_operation = True
    anchors = True

    def __init__(self, in_order: bool = False) -> None:
        super().__init__(in_order)
        self.choose = WindowChoice()

    def forward(self, x: Tensor, conv: nn.Conv2d) -> tuple[Tensor, Tensor]:
        """Tokenise the grid of the most energy (shift, Eq. 13-14): see `FixedSelection`.

        So the tokens of a shifted image are those of the image, shifted (shift, Claim 1, Eq. 16).
        """
        if not correlation_is_cheaper(x, conv):
            dense = circular_conv(x, conv, stride=1).permute(0, 2, 3, 1)
            return strongest_tokens(dense, conv, self.in_order)
        with torch.no_grad(), full_precision(x):
            scores = correlation_energies(x, conv)  # F of every grid m, with the bias
            # The energies along one direction only order grids of equal scores.
            phase = strongest_grid(projection_energies(x, conv), scores)  # m* (Eq. 14)
        return circular_conv(roll_image(x, phase), conv).permute(0, 2, 3, 1), phase  # Eq. 13

    @torch.no_grad()
    def margin(self, x: Tensor, conv: nn.Conv2d) -> tuple[Tensor, bool]:
        """Return the margin ``(B,)`` of the choice of `forward`, and False: nothing is anchored."""
        with full_precision(x):
            if not correlation_is_cheaper(x, conv):
                tokens = circular_conv(x, conv, stride=1).permute(0, 2, 3, 1)
                energies = token_norms(tokens).square()
                return grid_margin(components(energies, (conv.stride[0], conv.stride[0]))), False
            energies, errors = projection_energies(x, conv), projection_errors(x, conv)
            scores, error = correlation_energies(x, conv), correlation_error(x, conv)
            return grid_margin(energies, errors.to(energies.dtype), scores, error), False

    def choose_windows(self, x: Tensor, window: Size, merged: bool, anchored: bool) -> Tensor:
        """Choose where attention windows begin: see `FixedSelection`."""
        (offset,) = self.choose(x, [window], anchored, self.in_order)  # m* (Eq. 20)
        return cast(Tensor, offset)

    def choose_stage_offset(self, x: Tensor, period: int, anchored: bool) -> Tensor | None:
        """Return the anchor if `anchored`, else None: each operation then chooses its own grid."""
        return self.choose_windows(x, (1, 1), False, anchored) if anchored else None

    def merge_patches(self, x: Tensor, project: Projection) -> tuple[Tensor, Tensor]:
        """Merge the grid whose output has the most energy: see `FixedSelection`."""
        dense = project(overlapping_patches(x))  # y_k of all tokens (Eq. 22); Swin norms patches
        phase = strongest_phase(dense, MERGED, self.in_order)
        return sample(dense, phase, MERGED), phase  # APS (Eq. 23); at phase 0 it is Eq. 21


class PerStageSelection(FixedSelection):
    """Selection at the beginning of each stage only, before its blocks; it takes little time."""

    name = "per_stage"
    anchors = True

    def __init__(self, in_order: bool = False) -> None:
        super().__init__(in_order)
        self.choose = WindowChoice()

    def forward(self, x: Tensor, conv: nn.Conv2d) -> tuple[Tensor, Tensor]:
        """Tokenise the grid of the most energy along one direction: see `FixedSelection`."""
        with torch.no_grad(), full_precision(x):
            phase = strongest_grid(projection_energies(x, conv))
        return circular_conv(roll_image(x, phase), conv).permute(0, 2, 3, 1), phase

    @torch.no_grad()
    def margin(self, x: Tensor, conv: nn.Conv2d) -> tuple[Tensor, bool]:
        """Return the margin ``(B,)`` of the choice of `forward`, and False: nothing is anchored."""
        with full_precision(x):
            energies, errors = projection_energies(x, conv), projection_errors(x, conv)
            return grid_margin(energies, errors.to(energies.dtype)), False

    def choose_windows(self, x: Tensor, window: Size, merged: bool, anchored: bool) -> Tensor:
        """Choose where windows begin and, if they are `merged`, the phase of the merging, too."""
        sizes = [window]
        if merged and any(side % MERGED for side in window):
            sizes.append((MERGED, MERGED))  # patches are windows, too
        offsets = self.choose(x, sizes, anchored, self.in_order)
        if len(sizes) == 1:
            return cast(Tensor, offsets[0])
        offset, phase = offsets
        # One more window in the offset leaves the windows as they are. If its side is odd, the
        # offset's parity changes, and with it the phase of the merging.
        down, right = ((phase - offset) % MERGED).unbind(dim=1)
        rows, columns = (side * (side % MERGED) for side in window)
        return cast(Tensor, offset + torch.stack([rows * down, columns * right], dim=1))

    def choose_stage_offset(self, x: Tensor, period: int, anchored: bool) -> Tensor:
        """Choose where a stage begins by windows of its period: see `FixedSelection`."""
        return self.choose_windows(x, (period, period), False, anchored)

    def merge_patches(self, x: Tensor, project: Projection) -> tuple[Tensor, Tensor]:
        """Merge the grid whose input has the most energy: see `FixedSelection`."""
        phase = self.choose_windows(x, (MERGED, MERGED), False, False)
        return project(merged_patches(roll(x, phase))), phase


GRIDS: dict[str, type[FixedSelection]] = {
    grid.name: grid for grid in (PerLayerSelection, PerStageSelection, FixedSelection)
}


def strongest_tokens(
    dense: Tensor, conv: nn.Conv2d, in_order: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the strongest grid of `dense` ``(B, H, W, D)``, and its phase ``(B, 2)``.

    `dense` is the output of `conv` at every place. `in_order` is that of
    `polyphase.strongest_phase`.

    Source: shift, Eq. 13-14 of a tokeniser, Eq. 23 of merging.
    """
    stride = conv.stride[0]
    phase = strongest_phase(dense, stride, in_order)
    return sample(dense, phase, stride), phase


def tokens_at(images: Tensor, conv: nn.Conv2d, frame: Frame) -> Tensor:
    """Tokenise images ``(B, C, H, W)`` from the first pixel of their frame: channels-last tokens.

    If the frame begins at an anchor, the convolution reads the same pixels in the same order for
    all shifts of an image. So all shifts give tokens of the same bits, on every device. (On a
    device that rounds a token by its place, tokens that are rolled to the anchor would differ.)
    """
    return circular_conv(roll_image(images, frame.offset), conv).permute(0, 2, 3, 1)


def set_class(module: Any, module_type: type[Module]) -> Module:
    """Change the class of a module that timm has built to a subclass; return the module."""
    module.__class__ = module_type
    return cast(Module, module)


class Adaptive(nn.Module):
    """Mix-in of a model that holds a choice of grids and records its name: list it first.

    Logits of shifted images are equal except for rounding. Parameters have the names of the plain
    model's. Weights are trained for one selection, so to load those of another is an error. Plain
    weights load into any selection; to load adaptive weights into a plain model, remove
    ``_extra_state``.
    """

    choices: ClassVar[Mapping[str, type[FixedSelection]]] = GRIDS
    grid: FixedSelection

    @classmethod
    def of(
        cls,
        model: nn.Module,
        selection: Selection | str = "per_layer",
        inplace: bool = False,
        **modules: Any,
    ) -> Self:
        """Return a plain model made adaptive, with its weights (shift, Sec. A5.3).

        Args:
            model: of the class that `cls` makes adaptive.
            selection: how grids are chosen.
            inplace: change the model itself instead of a copy.
            modules: further options of `make_adaptive`.

        Raises:
            VitrailError: the model does not fit its images, or `selection` is unknown. The model
                is then as it was.
        """
        adaptive, plain_type = model if inplace else copy.deepcopy(model), type(model)
        set_class(adaptive, cls)
        try:
            cast(Adaptive, adaptive).make_adaptive(selection, **modules)
        except VitrailError:
            set_class(adaptive, plain_type)
            raise
        return cast(Self, adaptive)

    def make_adaptive(self, selection: str) -> None:
        """Complete a plain model that has been built; if it raises, the model is unchanged.

        Raises:
            VitrailError: as for `of`.
        """
        if (word := ALIASES.get(selection)) in self.choices:
            selection = str(word)
        require_known("selection", selection, self.choices)
        self.grid = self.choices[selection]()

    def get_extra_state(self) -> Tensor:
        """Return the selection's name as bytes: the older name, which all saved weights have."""
        name = RECORDED.get(self.grid.name, self.grid.name)
        return torch.tensor(list(name.encode()), dtype=torch.uint8, device="cpu")

    def set_extra_state(self, state: Tensor) -> None:
        """Check that weights are of this model's selection.

        Raises:
            VitrailError: they are of another selection, or of one that is unknown.
        """
        # Weights that were averaged or cast hold the bytes as floating-point numbers.
        trained = bytes(state.round().to(torch.uint8).flatten().tolist()).decode(errors="replace")
        trained = ALIASES.get(trained, trained)
        if trained not in self.choices:
            raise VitrailError(
                "the weights record no selection that this model knows: they are of another model "
                "or version; train them anew, or take '_extra_state' out of them"
            )
        if trained != self.grid.name:
            raise VitrailError(
                f"the weights are of selection '{trained}' and the model is of "
                f"'{self.grid.name}': build the model with selection='{trained}'"
            )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        state_dict.setdefault(f"{prefix}_extra_state", self.get_extra_state())
        super()._load_from_state_dict(state_dict, prefix, *args)
