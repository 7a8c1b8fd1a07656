"""Photographs in which each region has a colour of its own."""

import numpy as np
import pytest

from replication.datasets.stand_ins import position, regions

FIRST = 100


@pytest.fixture
def flat(monkeypatch):
    """Photographs of one colour a region, 100 + its index in red, and grey elsewhere.

    Where regions overlap the first in the list is seen.
    """
    photo = {name: np.full((427, 640, 3), 255, dtype=np.uint8) for name in ("china", "flower")}
    for index, (name, (left, top, right, bottom)) in reversed([*enumerate(regions.REGIONS)]):
        photo[name][top:bottom, left:right] = (FIRST + index, 0, 0)
    for module in (regions, position):
        monkeypatch.setattr(module, "photos", lambda: photo)
    return photo
