"""P-SHAP by Kernel SHAP: with two features, with parts of both, and with mean backgrounds.

The paper's text describes P-SHAP as Kernel SHAP of single elements of image and embedding, whose
SHAP values are summed (position, Sec. 3), and a background as the mean of a feature (position,
App. A). The authors' code has two features and averages logits over the background, and so does
P-SHAP here. All these variants are `kernel_shap` with different responses to coalitions, so they
can be compared on one batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from replication.context import Trained, Values, passes
from replication.papers.position.measures import transformed, validation
from vitrail.errors import VitrailError
from vitrail.measures.permutable import Permutable
from vitrail.measures.position_shap.half_batches import draw_folds, position_shap_half_batches
from vitrail.measures.position_shap.kernel import kernel_shap
from vitrail.measures.position_shap.shapley import position_share
from vitrail.measures.position_shap.sweep import collate
from vitrail.position.vit import PositionViT

Response = Callable[[Tensor], Tensor]
"""Returns the logits ``(C,)`` of coalitions ``(C, M)``; the first M / 2 features are parts of the
image, the others parts of the positions."""


def _passes(given: Mapping[str, Any]) -> float:
    coalitions = 2 ** (2 * given["parts"] ** 2)
    return 7 + coalitions + given["images"] / 2 * (5 + coalitions)


@passes(_passes)
def kernel_shap_of_parts(
    trained: Trained, images: int = 32, parts: int = 2, batch_size: int = 512
) -> Values:
    """Compare the definitions of P-SHAP on one batch; each half is the background of the other.

    Source: position, Sec. 3, App. A. `images` are spread evenly over the validation split. Images
    and positions are cut into `parts` x `parts` blocks of whole patches.

    Returns:
        ``closed/p_shap``, P-SHAP by the closed form for two features (by half batches), the mean
        over correctly classified images (None if there is none). For four ways by regression:
        ``<way>/p_shap``; ``<way>/difference``, the mean absolute difference from the closed form,
        over the P-SHAP of these images; and ``<way>/phi``, the largest difference from it in a SHAP
        value of any image, in logits. The last two are None for ``closed``. The ways are ``two``,
        the same two features; ``parts``, all blocks as features, whose SHAP values are summed for
        the image and for the positions; ``mean`` and ``mean_parts``, these two with means as
        backgrounds (`responses_to_means`).

    Raises:
        VitrailError: the model is not a PositionViT with the embedding 'ape' and without a CLS
            token, its grid has fewer rows or columns than `parts`, or as
            `position_shap_half_batches`.
    """
    model = trained.model
    if not isinstance(model, PositionViT) or model.embedding != "ape" or model.num_prefix_tokens:
        raise VitrailError(
            "Kernel SHAP of parts is measured of a table of the patches' positions alone: give a "
            "recipe of a position_vit with the embedding 'ape' and without a class token"
        )
    samples, device = transformed(trained, validation(trained, images)), trained.device
    folds = draw_folds(len(samples), model.positions, max(len(samples), 2), trained.seed)
    closed = position_shap_half_batches(trained.model, samples, folds=folds)
    whole, cut = blocks_of(model.grid_size, 1), blocks_of(model.grid_size, parts)
    ways = {"two": whole, "parts": cut, "mean": whole, "mean_parts": cut}
    phi = torch.zeros(len(ways), 2, len(samples), dtype=torch.float64)  # of image and positions
    for fold in folds:
        explained, labels = collate(samples, fold.samples)
        others, _ = collate(samples, fold.background)
        for index, image, label in zip(fold.samples, explained, labels.tolist(), strict=True):
            for way, (name, blocks) in enumerate(ways.items()):
                if name.startswith("mean"):
                    response = responses_to_means(model, image, label, others, blocks, device)
                else:
                    drawn = fold.permutations
                    response = responses(
                        model, image, label, others, drawn, blocks, device, batch_size
                    )
                each = kernel_shap(response, 2 * (int(blocks.max()) + 1))
                phi[way, :, index] = each.unflatten(0, (2, -1)).sum(dim=1)
    right, reference = closed.correct, torch.stack([closed.phi_image, closed.phi_position])

    def mean(of_images: Tensor) -> float | None:
        return of_images[right].mean().item() if right.any() else None

    values: dict[str, float | None] = {
        "images": len(samples),
        "closed/p_shap": mean(closed.values),
        "closed/difference": None,
        "closed/phi": None,
    }
    for name, both in zip(ways, phi, strict=True):
        phi_image, phi_position = both
        shares = position_share(phi_position, phi_image)
        values |= {
            f"{name}/p_shap": mean(shares),
            f"{name}/difference": mean((shares - closed.values).abs()),
            f"{name}/phi": (both - reference).abs().max().item(),
        }
    return values


def blocks_of(grid: tuple[int, int], parts: int) -> Tensor:
    """Return the index of each patch's block, ``(N,)``, for `parts` x `parts` blocks of the grid.

    Raises:
        VitrailError: a side of the grid has fewer patches than parts.
    """
    if not 1 <= parts <= min(grid):
        raise VitrailError(
            f"parts is {parts}, but the model has {grid[0]} x {grid[1]} patches: give 1 to "
            f"{min(grid)}"
        )
    rows, columns = (torch.arange(side) * parts // side for side in grid)
    return (parts * rows[:, None] + columns).flatten()


def responses(
    model: Permutable,
    image: Tensor,
    label: int,
    others: Tensor,
    permutations: Tensor,
    blocks: Tensor,
    device: str = "cpu",
    batch_size: int = 512,
) -> Response:
    """Return the response to coalitions of blocks: the logit, averaged over the background.

    A removed block of the image has the pixels of X_b, a removed block of the positions the rows of
    P_b.

    Args:
        model: in evaluation mode on `device`; its `permutation` may repeat rows, as with an
            additive embedding.
        image: ``(3, H, W)``.
        label: the class whose logit is explained.
        others: X_b, ``(m, 3, H, W)``.
        permutations: the rows of P_b, ``(m, N)``.
        blocks: the block of each patch, ``(N,)``, of a grid with the proportions of the image.
        device: where the model is.
        batch_size: images at a time, at least m.
    """
    count = len(others)

    def response(coalitions: Tensor) -> Tensor:
        means = []
        for part in coalitions.split(max(1, batch_size // count)):
            seen, placed = part.chunk(2, dim=1)
            shown = _pixels_of(seen, blocks, image)[:, None]  # (C, 1, 1, H, W)
            pixels = torch.where(shown, image, others).flatten(0, 1)  # (C m, 3, H, W)
            kept = placed[:, None, blocks]  # (C, 1, N)
            rows = torch.where(kept, torch.arange(len(blocks)), permutations).flatten(0, 1)
            with torch.inference_mode():
                logits = model(pixels.to(device), rows.to(device))[:, label].cpu().double()
            means.append(logits.unflatten(0, (-1, count)).mean(dim=1))
        return torch.cat(means)

    return response


def responses_to_means(
    model: PositionViT,
    image: Tensor,
    label: int,
    others: Tensor,
    blocks: Tensor,
    device: str = "cpu",
) -> Response:
    """Return the response to coalitions of blocks: the logit, with removed blocks set to means.

    A removed block of the image has the pixels of the mean of `others`. In a removed block of the
    positions, each row is the mean of all rows of the table of the embedding 'ape'. Arguments are
    as in `responses`.
    """
    name = "pos_embed.weight"
    table, absent = model.get_parameter(name), others.mean(dim=0)

    def response(coalitions: Tensor) -> Tensor:
        seen, placed = coalitions.chunk(2, dim=1)
        logits = torch.zeros(len(coalitions), dtype=torch.float64)
        for positions in placed.unique(dim=0):
            chosen = (placed == positions).all(dim=1)
            pixels = torch.where(_pixels_of(seen[chosen], blocks, image), image, absent).to(device)
            kept = positions[blocks, None].to(device)
            with torch.inference_mode():
                weight = torch.where(kept, table, table.mean(dim=0))
                found = torch.func.functional_call(model, {name: weight}, (pixels,))
            logits[chosen] = found[:, label].cpu().double()
        return logits

    return response


def _pixels_of(seen: Tensor, blocks: Tensor, image: Tensor) -> Tensor:
    """Return the mask ``(C, 1, H, W)`` of the pixels in the blocks of `seen` ``(C, blocks)``."""
    height, width = image.shape[1:]
    side = math.isqrt(height * width // len(blocks))  # of a patch
    patches = seen[:, blocks].unflatten(1, (1, height // side, width // side))
    return patches.repeat_interleave(side, 2).repeat_interleave(side, 3)
