"""Read mask files; the special labels of pixels that have no class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from vitrail.errors import VitrailError
from vitrail.image_files import FORMATS, decoding

IGNORED = 255  # label of a pixel that the scores ignore
UNSEEN = -1  # class of a pixel without a prediction, because a shift moved it out of the image


def read_mask(path: str | Path) -> np.ndarray:
    """Decode a mask file as it is stored: (H, W) uint8.

    Raises VitrailError if the file is damaged or gone, or holds colours rather than labels.
    """
    with decoding("mask", path), Image.open(path, formats=FORMATS) as image:
        if image.mode not in ("L", "P"):
            raise VitrailError(f"mask {path} holds colours ({image.mode}), not labels")
        return np.array(image)
