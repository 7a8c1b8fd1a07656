"""Equivariance of untrained full-size segmenters on real photographs; it holds for any weights.

`replication.measures.untrained_invariance` does this for classifiers, this module for the
segmenters of Table 5 of shift.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from replication.config.recipes.segmentation import SegmentationRecipe
from replication.context import Described, Values
from replication.images.photos import photo_centre, photos
from replication.measures.segmentation_consistency import logits_of
from replication.measures.untrained_invariance import as_input, open_branches
from replication.training.segmentation.config import build_model, image_shape
from vitrail.measures.invariance import change_under
from vitrail.seeding import seed_everything
from vitrail.shift.conversion import random_shifts
from vitrail.shift.geometry import roll_image


def segmenter_equivariance(
    described: Described[SegmentationRecipe],
    shifts: int = 1,
    decode_head: Mapping[str, Any] | None = None,
) -> Values:
    """Measure how circular shifts change the logits of an untrained segmenter (shift, Eq. 2).

    The two photographs are scaled to the size of the recipe's crops; each is shifted by `shifts`
    random offsets of its own. `decode_head` overrides fields of the recipe's. Weights are random.

    Returns:
        the fields of `vitrail.measures.invariance.Change`, for logits at the size of the image,
        compared with those of the unshifted image, shifted alike; predictions are of pixels.

    Raises:
        VitrailError: the model does not exist or refuses its arguments, or a logit is not finite.
    """
    recipe = described.recipe
    if decode_head:
        head = {**recipe.model.args.get("decode_head", {}), **decode_head}
        args = {**recipe.model.args, "decode_head": head}
        recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update={"args": args})})
    seed_everything("architecture", described.seed)
    model = build_model(recipe, described.info.classes).to(described.device).eval()
    open_branches(model)
    side = image_shape(recipe)[1]
    shown = np.stack([photo_centre(name, side) for name in photos()])
    x = as_input(torch.from_numpy(shown).to(described.device), torch.float32)
    group = random_shifts(x, shifts, described.seed)._replace(on_output=roll_image)
    return change_under(partial(logits_of, model), group, x)._asdict()
