"""The paper's Figures 1 to 4, measured: what its own modules do to a photograph under a shift.

The paper draws Figures 1 to 3 as diagrams. Here the real tokeniser, window selection and relative
distances run on a real image and on its shifted copy, and the figures draw what they return.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import timm
import torch
from torch import Tensor, nn

from replication.context import Context, Trained, Values, passes
from replication.images.photos import photo_centre
from replication.images.transforms import normalization
from vitrail.shift.adaptive_mvitv2 import circular_distance
from vitrail.shift.energies import correlation_energies
from vitrail.shift.geometry import Features, circular_conv, roll_image
from vitrail.shift.polyphase import polyphase_energies, roll
from vitrail.shift.selection import PerLayerSelection, window_energies, window_offset

SHIFTS = ("image", "shifted")


def photo(size: int) -> Tensor:
    """Return the centre of the photograph `flower`, scaled to ``(1, 3, size, size)`` in [0, 1]."""
    return torch.tensor(photo_centre("flower", size))[None].permute(0, 3, 1, 2).double() / 255


def tokenizer(model: str, seed: int) -> nn.Conv2d:
    """Return the patch embedding of a model of timm's, initialised by `seed`, in float64."""
    torch.manual_seed(seed)
    made: Any = timm.create_model(model)
    conv: nn.Conv2d = made.patch_embed.proj
    return conv.double()


@torch.no_grad()
def tokenization_illustration(context: Context, model: str, size: int, shift: int) -> Values:
    """Tokenise a photograph and its shifted copy, on the fixed grid and on the strongest (Fig. 1).

    Args:
        context: its seed initialises the tokeniser.
        model: whose ``patch_embed.proj`` tokenises.
        size: pixels of the image.
        shift: rows and columns that the copy is shifted by.

    Returns:
        ``<which>/energy i, j``: of the grid of each phase, relative to the strongest;
        ``<which>/chosen i, j``: 1 for the chosen phase; ``<which>/pixels``, ``<which>/phase``;
        ``patch`` (its side) and ``shift``;
        ``plain change`` and ``adaptive change``: the largest change of a token's norm, the tokens
        sorted by it so that only their set counts. `which` is image or shifted.
    """
    conv, image = tokenizer(model, context.seed), photo(size)
    images = (image, roll_image(image, torch.tensor([[shift, shift]])))
    values: dict[str, Any] = {"patch": conv.stride[0], "shift": shift}
    tokens: dict[str, list[Tensor]] = {"plain": [], "adaptive": []}
    for which, copy in zip(SHIFTS, images, strict=True):
        chosen, phase = PerLayerSelection()(copy, conv)
        values |= _scores(which, correlation_energies(copy, conv)[0], phase[0])
        values[f"{which}/pixels"] = (copy[0].permute(1, 2, 0) * 255).round().int().tolist()
        tokens["adaptive"].append(chosen)
        tokens["plain"].append(circular_conv(copy, conv).permute(0, 2, 3, 1))
    for way, pair in tokens.items():
        before, after = (tokens_of.norm(dim=-1).flatten().sort().values for tokens_of in pair)
        values[f"{way} change"] = (before - after).abs().max().item()
    return values


@torch.no_grad()
def window_illustration(context: Context, model: str, size: int, window: int, shift: int) -> Values:
    """Choose the windows of a photograph's tokens and of their shifted copy (Fig. 2).

    Args:
        context: its seed initialises the tokeniser.
        model: whose ``patch_embed.proj`` tokenises.
        size: pixels of the image.
        window: tokens on a side.
        shift: tokens that the copy is shifted by.

    Returns:
        ``<which>/energy i, j``: energy of the grid of windows at each offset, relative to the
        strongest; ``<which>/chosen i, j``; ``<which>/norms``: of the tokens;
        ``<which>/phase``: the chosen offset; ``window`` and ``shift``.
    """
    tokens = circular_conv(photo(size), tokenizer(model, context.seed)).permute(0, 2, 3, 1)
    copies = (tokens, roll(tokens, torch.tensor([[shift, shift]])))
    values: dict[str, Any] = {"window": window, "shift": shift}
    for which, copy in zip(SHIFTS, copies, strict=True):
        energies = window_energies(copy, (window, window))
        grids = polyphase_energies(energies.square(), (window, window))[0]
        values |= _scores(which, grids, window_offset(copy, (window, window))[0])
        values[f"{which}/norms"] = copy[0].norm(dim=-1).tolist()
    return values


def _scores(which: str, energies: Tensor, chosen: Tensor) -> dict[str, Any]:
    """Name the score of each phase, relative to the strongest, and mark the chosen one."""
    values: dict[str, Any] = {f"{which}/phase": chosen.tolist()}
    relative = energies / energies.max()
    for i, j in itertools.product(*map(range, energies.shape)):
        values[f"{which}/energy {i}, {j}"] = relative[i, j].item()
        values[f"{which}/chosen {i}, {j}"] = float([i, j] == chosen.tolist())
    return values


def relative_distances(context: Context, tokens: int) -> Values:
    """Compare relative distances before and after circular shifts of M tokens (Fig. 3).

    Returns:
        ``<way>/changed by s``: how many of the M x M distances a shift by s changes;
        ``<way>/matrix s``: the distances after that shift, rows queries and columns keys; `way` is
        linear or circular (shift, Eq. 12, Eq. 24).
    """
    ways: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {
        "linear": lambda q, k, period: q[:, None] - k[None, :],
        "circular": circular_distance,
    }
    values: dict[str, Any] = {}
    for way, distance in ways.items():
        matrices = []
        for shift in range(tokens):
            places = (torch.arange(tokens) + shift) % tokens
            matrices.append(distance(places, places, tokens))
            values[f"{way}/matrix {shift}"] = matrices[-1].tolist()
            values[f"{way}/changed by {shift}"] = (matrices[-1] != matrices[0]).sum().item()
    return values


@passes(lambda given: {given["size"] / given["side"]: 2 / given["images"]})
def token_consistency(trained: Trained, size: int = 224, shift: int = 1) -> Values:
    """Compare the tokens of a photograph with those of its shifted copy, stage by stage (Fig. 4).

    Source: shift, Sec. 5.3.

    Tokens of an adaptive model are put back by their offsets, those of a plain one by whole tokens
    of the stage's stride; float64.

    Args:
        trained: a model with ``forward_stages`` that takes images of any size.
        size: pixels of the photograph.
        shift: rows and columns, in pixels.

    Returns:
        ``block s/max``: the largest change of a token's channel, relative to the largest
        activation; ``block s/map``: ``(H, W)`` change in the channel with the most energy, relative
        to the same; ``block s/drawn``: the largest change in this channel, undivided.
    """
    model: Any = trained.model.double()
    mean, std = (
        torch.tensor(values_of, device=trained.device)[:, None, None]
        for values_of in normalization(trained.info, trained.recipe.data.normalization)
    )
    image = (photo(size).to(trained.device) - mean) / std
    offset = torch.full((1, 2), shift, device=image.device)
    with torch.inference_mode():
        before: list[Features] = model.forward_stages(image)
        after: list[Features] = model.forward_stages(roll_image(image, offset))
    values: dict[str, Any] = {}
    for index, (old, new) in enumerate(zip(before, after, strict=True), start=1):
        # Token n of the copy shows what sat at pixel `new.offset + shift + stride * n`.
        moved = (new.offset + offset - old.offset).div(old.stride, rounding_mode="floor")
        change = (roll_image(new.tokens, -moved) - old.tokens)[0].abs().cpu()
        energy = old.tokens[0].square().sum(dim=(1, 2)).cpu()
        largest = old.tokens.abs().max().item()
        values[f"block {index}/max"] = change.max().item() / largest
        drawn = change[energy.argmax()]
        values[f"block {index}/drawn"] = drawn.max().item()
        values[f"block {index}/map"] = (drawn / largest).tolist()
    model.float()
    return values
