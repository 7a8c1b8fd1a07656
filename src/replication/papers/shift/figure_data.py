"""Measure the paper's Figures 1 to 4: how its modules treat a photograph and its shifted copy.

The paper draws Figures 1 to 3 as diagrams. Here the real tokeniser, window selection and relative
distances are computed for a real image and for its shifted copy, and the figures draw the results.
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
    """Tokenise a photograph and its shifted copy, on the fixed and the adaptive grid (Fig. 1).

    Args:
        context: its seed initialises the tokeniser.
        model: name of the timm model whose ``patch_embed.proj`` tokenises.
        size: side of the image in pixels.
        shift: pixels by which the copy is shifted, along rows and columns.

    Returns:
        with `which` image or shifted: ``<which>/energy i, j``, the energy of the grid with phase
        (i, j), relative to the largest; ``<which>/chosen i, j``, 1 for the chosen phase, else 0;
        ``<which>/pixels``, ``<which>/phase``. Also ``patch`` (its side) and ``shift``; ``plain
        change`` and ``adaptive change``, the largest difference between the sorted norms of the
        tokens, which does not depend on their order.
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
        model: name of the timm model whose ``patch_embed.proj`` tokenises.
        size: side of the image in pixels.
        window: side of a window in tokens.
        shift: tokens by which the copy is shifted, along rows and columns.

    Returns:
        with `which` image or shifted: ``<which>/energy i, j``, the energy of the grid of windows at
        the offset (i, j), relative to the largest; ``<which>/chosen i, j``, 1 for the chosen
        offset, else 0; ``<which>/norms``, of the tokens; ``<which>/phase``, the chosen offset. Also
        ``window`` and ``shift``.
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
    """Return ``energy`` (relative to the largest), ``chosen`` and ``phase`` of `which`."""
    values: dict[str, Any] = {f"{which}/phase": chosen.tolist()}
    relative = energies / energies.max()
    for i, j in itertools.product(*map(range, energies.shape)):
        values[f"{which}/energy {i}, {j}"] = relative[i, j].item()
        values[f"{which}/chosen {i}, {j}"] = float([i, j] == chosen.tolist())
    return values


def relative_distances(context: Context, tokens: int) -> Values:
    """Compare relative distances before and after circular shifts of M tokens (Fig. 3).

    Returns:
        ``<way>/changed by s``: how many of the M x M distances a shift by s tokens changes;
        ``<way>/matrix s``: the distances after that shift, with rows for queries and columns for
        keys. `way` is linear or circular (shift, Eq. 12, Eq. 24).
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

    Tokens of the shifted copy are shifted back: for an adaptive model by its offsets, for a plain
    one by the largest whole number of tokens in the shift. Computed in float64.

    Args:
        trained: a model with ``forward_stages`` that accepts images of any size.
        size: side of the photograph in pixels.
        shift: pixels, along rows and columns.

    Returns:
        for each stage s: ``block s/max``, the largest absolute change of an activation, divided by
        the largest activation; ``block s/map``, ``(H, W)``, the changes in the channel with the
        most energy, with the same divisor; ``block s/drawn``, the largest change in this channel,
        not divided.
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
        # Token n of the copy shows the pixel `new.offset + shift + stride * n` of the image.
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
