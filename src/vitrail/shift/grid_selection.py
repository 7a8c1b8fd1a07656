"""How a model chooses its grids (shift, Sec. 4): a module that the model holds.

A tokeniser is a strided convolution (Eq. 5-6: `circular_conv`); circular, it has L = stride^2 grids
m to choose from, and a shift of the image only exchanges and rolls them (Lemma 1, Eq. 15:
`polyphase.grids`). The paper scores each by the energy of its tokens, F = sum of ||X E + b||^2
(Eq. 14). Patch merging (Eq. 10: `merged_patches`) is a strided convolution too (Claim 3). The paper
computes it densely, at every token, and samples the output's strongest polyphase component (APS,
Eq. 21-23).

- `PaperGrid`, ``selection="paper"``, does so for every strided operation.
- `FastGrid`, ``"fast"``, scores a tokeniser by F = sum of <a, token>^2 for one direction a. Any
  function of the tokens that ignores their order will do for F (shift, Claim 1), and this is one
  channel instead of D. A LayerNorm behind the tokeniser removes the mean of the channels, so a is
  orthogonal to it. All later grids of a stage are fixed by one choice at its beginning, by the
  energy of its tokens. These are rolled so that every grid begins at token (0, 0).
- `FirstGrid`, ``"none"``, leaves every grid at the first pixel and token, to see what choosing
  costs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, Self, TypeVar, cast

import torch
from timm.models import register_notrace_module
from torch import Tensor, nn

from vitrail.errors import VitrailError, require_known
from vitrail.shift.autocorrelation import correlation_energies, correlation_is_cheaper
from vitrail.shift.error_bounds import correlation_error, grid_margin
from vitrail.shift.polyphase import (
    full_precision,
    grids,
    roll,
    sample,
    strongest_grid,
    strongest_phase,
    token_norms,
)
from vitrail.shift.token_energies import (
    merged_patches,
    overlapping_patches,
    projection_energies,
    projection_errors,
)
from vitrail.shift.torus import Frame, Size, circular_conv, roll_image, zero_offsets
from vitrail.shift.windows import WindowChoice

Selection = Literal["paper", "fast", "none"]
Projection = Callable[[Tensor], Tensor]
Module = TypeVar("Module", bound=nn.Module)
MERGED = 2  # tokens of each axis that are merged into one

for _node in ("roll", "sample", "strongest_phase"):  # of a traced graph, as each call of a grid
    torch.fx.wrap(_node)


@register_notrace_module
class FirstGrid(nn.Module):
    """Grids that begin at the first pixel and token; the interface of all choices."""

    name: str = "none"
    per_operation = False  # whether every strided operation chooses, not only a stage's beginning
    anchors = False  # whether models compute their first tokens again at the anchor: `tokens_at`
    per_layer = False  # whether every attention layer lays its windows, not only a stage's first

    def __init__(self, in_order: bool = False) -> None:
        super().__init__()
        self.in_order = in_order  # whether it chooses behind an anchor: see `polyphase`

    def behind_anchor(self) -> FirstGrid:
        """Return what chooses behind the anchor of a model that this one has anchored."""
        return type(self)(in_order=True) if self.anchors else self

    def forward(self, x: Tensor, conv: nn.Conv2d) -> tuple[Tensor, Tensor]:
        """Tokenise one grid (shift, Eq. 13, Eq. 16, Claim 1).

        ``(B, C, H, W)``, height and width multiples of the stride, gives channels-last tokens
        ``(B, H / s, W / s, D)`` and the phase ``(B, 2)`` of the grid.
        """
        return circular_conv(x, conv).permute(0, 2, 3, 1), zero_offsets(x)

    def windows(self, x: Tensor, window: Size, merged: bool, anchored: bool) -> Tensor | None:
        """Choose where attention windows begin (shift, Eq. 20): see `windows.window_offset`.

        `merged` says that patch merging follows. None is the first token.
        """
        return None

    def stage(self, x: Tensor, period: int, anchored: bool) -> Tensor | None:
        """Choose where a stage without windows begins, its strides dividing `period`, as above."""
        return None

    def merge(self, x: Tensor, project: Projection) -> tuple[Tensor, Tensor]:
        """Merge one grid of 2x2 patches (shift, Eq. 23, Sec. A2.1).

        Args:
            x: tokens ``(B, H, W, C)``, H and W even.
            project: ``(..., 4C)`` to ``(..., D)``.

        Returns:
            ``(B, H / 2, W / 2, D)`` and the phase ``(B, 2)`` of the grid.
        """
        return project(merged_patches(x)), zero_offsets(x)  # PMerge (Eq. 10)


class PaperGrid(FirstGrid):
    """The paper's: the grid whose tokens have the most energy, for each strided operation."""

    name = "paper"
    per_operation = True
    anchors = True

    def __init__(self, in_order: bool = False) -> None:
        super().__init__(in_order)
        self.choose = WindowChoice()

    def forward(self, x: Tensor, conv: nn.Conv2d) -> tuple[Tensor, Tensor]:
        """Tokenise the grid of the most energy: see `FirstGrid`."""
        if not correlation_is_cheaper(x, conv):
            dense = circular_conv(x, conv, stride=1).permute(0, 2, 3, 1)
            return strongest_tokens(dense, conv, self.in_order)
        with torch.no_grad(), full_precision(x):
            scores = correlation_energies(x, conv)  # F(X^(m) E) of every m
            phase = strongest_grid(projection_energies(x, conv), scores)  # m* (Eq. 14)
        return circular_conv(roll_image(x, phase), conv).permute(0, 2, 3, 1), phase  # Eq. 13

    @torch.no_grad()
    def margin(self, x: Tensor, conv: nn.Conv2d) -> tuple[Tensor, bool]:
        """Return the margin ``(B,)`` of the choice of `forward`; no, tokens are not anchored."""
        with full_precision(x):
            if not correlation_is_cheaper(x, conv):
                tokens = circular_conv(x, conv, stride=1).permute(0, 2, 3, 1)
                energies = token_norms(tokens).square()
                return grid_margin(grids(energies, (conv.stride[0], conv.stride[0]))), False
            energies, errors = projection_energies(x, conv), projection_errors(x, conv)
            scores, error = correlation_energies(x, conv), correlation_error(x, conv)
            return grid_margin(energies, errors.to(energies.dtype), scores, error), False

    def windows(self, x: Tensor, window: Size, merged: bool, anchored: bool) -> Tensor:
        """Choose where attention windows begin: see `FirstGrid`."""
        (offset,) = self.choose(x, [window], anchored, self.in_order)  # m* (Eq. 20)
        return cast(Tensor, offset)

    def stage(self, x: Tensor, period: int, anchored: bool) -> Tensor | None:
        """Choose the anchor of the first stage, if that is asked for; all else its operations."""
        return self.windows(x, (1, 1), False, anchored) if anchored else None

    def merge(self, x: Tensor, project: Projection) -> tuple[Tensor, Tensor]:
        """Merge the grid whose output has the most energy: see `FirstGrid`."""
        dense = project(overlapping_patches(x))  # y_k of all tokens (Eq. 22)
        phase = strongest_phase(dense, MERGED, self.in_order)
        return sample(dense, phase, MERGED), phase  # APS (Eq. 23); at phase 0 it is Eq. 21


class FastGrid(FirstGrid):
    """One choice a stage, which costs next to nothing."""

    name = "fast"
    anchors = True

    def __init__(self, in_order: bool = False) -> None:
        super().__init__(in_order)
        self.choose = WindowChoice()

    def forward(self, x: Tensor, conv: nn.Conv2d) -> tuple[Tensor, Tensor]:
        """Tokenise the grid of the most energy along one direction: see `FirstGrid`."""
        with torch.no_grad(), full_precision(x):
            phase = strongest_grid(projection_energies(x, conv))
        return circular_conv(roll_image(x, phase), conv).permute(0, 2, 3, 1), phase

    @torch.no_grad()
    def margin(self, x: Tensor, conv: nn.Conv2d) -> tuple[Tensor, bool]:
        """Return the margin ``(B,)`` of the choice of `forward`; no, tokens are not anchored."""
        with full_precision(x):
            energies, errors = projection_energies(x, conv), projection_errors(x, conv)
            return grid_margin(energies, errors.to(energies.dtype)), False

    def windows(self, x: Tensor, window: Size, merged: bool, anchored: bool) -> Tensor:
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

    def stage(self, x: Tensor, period: int, anchored: bool) -> Tensor:
        """Choose where a stage begins by windows of its period: see `FirstGrid`."""
        return self.windows(x, (period, period), False, anchored)

    def merge(self, x: Tensor, project: Projection) -> tuple[Tensor, Tensor]:
        """Merge the grid whose input has the most energy: see `FirstGrid`."""
        phase = self.windows(x, (MERGED, MERGED), False, False)
        return project(merged_patches(roll(x, phase))), phase


GRIDS: dict[str, type[FirstGrid]] = {grid.name: grid for grid in (PaperGrid, FastGrid, FirstGrid)}


def strongest_tokens(
    dense: Tensor, conv: nn.Conv2d, in_order: bool = False
) -> tuple[Tensor, Tensor]:
    """Keep the strongest grid of what `conv` makes at every place, ``(B, H, W, D)``, and its phase.

    `in_order` is that of `polyphase.strongest_phase`.

    Source: shift, Eq. 13-14 of a tokeniser, Eq. 23 of merging.
    """
    stride = conv.stride[0]
    phase = strongest_phase(dense, stride, in_order)
    return sample(dense, phase, stride), phase


def tokens_at(images: Tensor, conv: nn.Conv2d, frame: Frame) -> Tensor:
    """Tokenise images ``(B, C, H, W)`` from the first pixel of their frame: channels-last tokens.

    Where the frame begins at an anchor, the convolution reads the same pixels in the same order for
    all shifts of an image. So its tokens have the same bits on every device, also on one that
    rounds a token by its place, whose tokens, rolled to the anchor, would not.
    """
    return circular_conv(roll_image(images, frame.offset), conv).permute(0, 2, 3, 1)


def set_class(module: Any, module_type: type[Module]) -> Module:
    """Make a module, which timm has built and in which it names its class, one of a subclass."""
    module.__class__ = module_type
    return cast(Module, module)


class Adaptive(nn.Module):
    """A model that holds a choice of grids, and records its name; first in a class's bases.

    Logits of shifted images are equal but for rounding. Parameters and their names are the plain
    model's, so that weights interchange both ways. Weights learn the grids that they are trained
    on, so those of another choice are refused. A plain model's record none and fit any; it takes
    ours without ``_extra_state``.
    """

    choices: ClassVar[Mapping[str, type[FirstGrid]]] = GRIDS
    grid: FirstGrid

    @classmethod
    def of(
        cls,
        model: nn.Module,
        selection: Selection | str = "paper",
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
        """Complete a plain model that has been built; where it raises, nothing has changed.

        Raises:
            VitrailError: as `of`.
        """
        require_known("selection", selection, self.choices)
        self.grid = self.choices[selection]()

    def get_extra_state(self) -> Tensor:
        """Return the name of the choice, as bytes."""
        return torch.tensor(list(self.grid.name.encode()), dtype=torch.uint8, device="cpu")

    def set_extra_state(self, state: Tensor) -> None:
        """Compare what weights record with the model.

        Raises:
            VitrailError: they are of another choice, or record it in another way.
        """
        # Weights that were averaged or cast hold the bytes as floating-point numbers.
        trained = bytes(state.round().to(torch.uint8).flatten().tolist()).decode(errors="replace")
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
