"""The paper's Figure 2, taken from the data itself: how a Position dataset is made.

A file of its own, since the name of a measurement holds that of its module.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vitrine.data import build
from vitrine.data.positions import DEPENDENT, original_of
from vitrine.measures.context import Described, Values
from vitrine.position.measures import CLASSES, require_position_dataset


def position_samples(described: Described, samples: int = 3) -> Values:
    """Show training samples of every class of a Position dataset (Fig. 2).

    Args:
        described: a recipe on such a dataset, whose images must be there.
        samples: of each class, its first ones; fewer where it has no more.

    Returns:
        ``samples``: the number of each class; for each class c ``<c>/original``, which class its
        content has in the original dataset; ``<c>/dependent``, 1 or 0; ``<c>/images``, how many
        there are; ``<c>/share``: ``(2, 2)``, percent of them in each corner; ``<c>/content``:
        ``(s, s, 3)`` bytes of the first one's content; ``<c>/pixels``: ``(n, 2s, 2s, 3)``.

    Raises:
        VitrineError: the recipe's dataset is no Position dataset, or is not there.
    """
    dataset = build(described.info, "train", described.data_root)
    placed = require_position_dataset(dataset, described)
    corners = placed.places // placed.places.max()  # (N, 2), row and column
    values: dict[str, Any] = {"samples": samples}
    for label in range(CLASSES):
        own = np.flatnonzero(placed.labels == label)
        counts = np.zeros((2, 2))
        np.add.at(counts, tuple(corners[own].T), 1)
        values |= {
            f"{label}/original": original_of(label),
            f"{label}/dependent": int(label in DEPENDENT),
            f"{label}/images": len(own),
            f"{label}/share": (100 * counts / len(own)).tolist(),
            f"{label}/content": placed.images[own[0]].tolist(),
            f"{label}/pixels": [np.asarray(placed[index][0]).tolist() for index in own[:samples]],
        }
    return values
