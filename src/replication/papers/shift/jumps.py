"""Jumps of a grid that is chosen among whole pixels, and a lower bound of their effect; ours.

Let a model begin its grid at a pixel c(x) that moves with the image: a shift of x by whole pixels m
moves c by m. Let every fraction of a pixel be equally likely as the position of an image, let v be
a vector of ones and minus ones (a diagonal), and let J be the root mean square of the change of the
logits, among images whose grid differs between x and x shifted by t v. Then:

1. The root mean square of the change over all images is at least sqrt(share) J, where share is the
   share of the images whose grid differs. Their squared changes contribute share J^2 to the mean
   over all images, and those of the other images are not negative.
2. If t = 1 / n for a whole number n, the share is at least t. Proof: n shifts by t v are one by v,
   which is whole and moves the grid by v, so the grid differs at one of the n steps or more. At
   each step the fraction of a pixel is as uniform as before it, so all have the same share, and n
   shares are at least 1. For any t up to 1 the same is true of images whose grid differs anywhere
   on the way: on each line along v the places where it changes repeat after a step of v and there
   is one at least, so a share t lies less than t before one.
3. If the row of c depends on the shift of rows alone, and so for columns, the two jump
   independently, and for t = 1 / n the share is at least 1 - (1 - t)^2 = 2 t - t^2.

So for t = 1 / n every choice among whole pixels, A-token, APS, polyphase anchoring and LPS among
them, changes the logits by at least sqrt(t) J, and one whose rows and columns are independent by at
least sqrt(2 t - t^2) J; a plain model's change is about proportional to t. At another t a choice
may jump forth and back between the two images; there sqrt(t) J is a bound if at least a share t of
the grids differs, which `grid_jumps` counts. The first bound cannot be raised for all: along
(1, 1) the choice c = (floor(y), floor(x - y + floor(y))) jumps in rows and columns at once.
"""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor

from replication.context import Trained, Values, passes
from replication.images.transforms import eval_transform
from replication.measures.validation_split import validation_batches
from vitrail.errors import VitrailError
from vitrail.extensions.fractional_shifts import fourier_shift
from vitrail.measures.shifts import draws
from vitrail.shift.swin import AdaptiveSwinBase


@passes(4)
def grid_jumps(
    trained: Trained,
    fraction: float = 0.03,
    batch_size: int = 128,
    images: int | None = None,
) -> Values:
    """Shift images as `fractional_consistency` does, and count those whose grids change.

    Args:
        trained: a model of `AdaptiveSwinBase`; its seed draws the directions.
        fraction: of a pixel, along both axes, by Fourier.
        batch_size: images of a batch.
        images: how many, spread evenly over the validation split; None is all.

    Returns:
        ``share``: percent of images in which a grid of tokens or windows begins at another pixel
        after the shift. ``jump``: the root mean square change of the logits of these images,
        divided by the standard deviation of the logits over all images, as ``change`` of
        `fractional_consistency`; None if no grid changes. ``bound``: ``sqrt(fraction) * jump``, a
        lower bound of ``change``; None if ``share`` is less than 100 times the fraction, as the
        bound does not hold then (see the module). ``change`` of all images, and ``images``.

    Raises:
        VitrailError: the model is not an adaptive Swin.
    """
    model = trained.model
    if not isinstance(model, AdaptiveSwinBase):
        raise VitrailError(
            f"grid_jumps measures adaptive Swin models, and '{trained.recipe.model.name}' is none: "
            "name a recipe of an A-Swin or a polyphase Swin"
        )
    transform = eval_transform(trained.recipe, trained.info)
    still: list[Tensor] = []
    moved: list[Tensor] = []
    jumped: list[Tensor] = []
    for indices, batch, _ in validation_batches(trained, transform, batch_size, images):
        signs = 2 * (draws(trained.seed, "fractional shift", indices, 2) < 0.5).double() - 1
        views = [fourier_shift(batch, offset) for offset in (0 * signs, fraction * signs)]
        for view, logits in zip(views, (still, moved), strict=True):
            scores = trained.logits(view).double()
            logits.append(scores - scores.mean(dim=1, keepdim=True))
        before, after = (grid_places(model, view.to(trained.device)) for view in views)
        jumped.append((before != after).any(dim=1).cpu())
    at_rest, differs = torch.cat(still), torch.cat(jumped)
    squares = (torch.cat(moved) - at_rest).square().mean(dim=1)
    squares = squares / (at_rest - at_rest.mean(dim=0)).square().mean()
    share = differs.double().mean().item()
    jump = squares[differs].mean().sqrt().item() if share else None
    return {
        "share": 100 * share,
        "jump": jump,
        "bound": sqrt(fraction) * jump if jump is not None and share >= fraction else None,
        "change": squares.mean().sqrt().item(),
        "images": len(squares),
    }


@torch.inference_mode()
def grid_places(model: AdaptiveSwinBase, images: Tensor) -> Tensor:
    """Return the pixel at which the windows of each of S stages begin in ``(B, C, H, W)``.

    The result ``(B, 2 S)`` has row and column of each stage, modulo a window: the anchor only
    decides which of the windows comes first in memory.
    """
    places = []
    for stage, features in zip(model.layers, model.forward_stages(images), strict=True):
        window = torch.tensor(stage.blocks[0].window_size, device=images.device)
        places.append(features.offset % (features.stride * window))
    return torch.cat(places, dim=1)
