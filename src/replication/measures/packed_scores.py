"""What a measure scores on each image, packed for a measurement's JSON and an artifact's CSV.

A percentage over a test set hides which images were right, and two models mostly fail on the same
ones: kept image by image, their difference is known far better than either number. A measure puts
the scores of ``key`` beside its value, as ``key + BY_IMAGE``; artifacts read them.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Sequence

import numpy as np

from vitrail.errors import VitrailError

BY_IMAGE = " by image"


def pack(scores: Sequence[int]) -> str:
    """Pack the scores of N images, of which 100 times the mean is a percentage, into text.

    They are 1 (right) and 0, or differences of such, in the order of the test set.
    """
    return base64.b64encode(zlib.compress(np.asarray(scores, np.int8).tobytes(), 9)).decode()


def unpack(seeds: str) -> np.ndarray:
    """Unpack what `pack` made for each seed, joined by spaces: (seeds, N) int8.

    Raises:
        VitrailError: it is something else.
    """
    try:
        packed = [zlib.decompress(base64.b64decode(seed)) for seed in seeds.split(" ")]
        return np.stack([np.frombuffer(scores, np.int8) for scores in packed])
    except (binascii.Error, zlib.error, ValueError) as error:
        raise VitrailError(
            f"scores by image are damaged ({error}); delete the measurement and the artifact that "
            "hold them, and take them again"
        ) from None
