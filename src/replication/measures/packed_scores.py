"""Scores of a measure on each image, packed into text for a measurement or an artifact's CSV.

A percentage over a test set does not say which images were right. Two models mostly fail on the
same images, so from scores of single images their difference is known more precisely than either
percentage. A measure returns the scores of the value ``key`` as ``key + BY_IMAGE``; artifacts read
them.
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
    """Pack the scores of N images into text; 100 times their mean is the percentage.

    Scores are 1 (right) or 0 (wrong), or differences of two such scores, in the order of the test
    set.
    """
    return base64.b64encode(zlib.compress(np.asarray(scores, np.int8).tobytes(), 9)).decode()


def unpack(seeds: str) -> np.ndarray:
    """Unpack texts that `pack` made, one for each seed, joined by spaces: (seeds, N) int8.

    Raises:
        VitrailError: the text is damaged, or the seeds have different numbers of images.
    """
    try:
        packed = [zlib.decompress(base64.b64decode(seed)) for seed in seeds.split(" ")]
        return np.stack([np.frombuffer(scores, np.int8) for scores in packed])
    except (binascii.Error, zlib.error, ValueError) as error:
        raise VitrailError(
            f"scores by image are damaged ({error}); delete the measurement and the artifact that "
            "hold them, and take them again"
        ) from None
