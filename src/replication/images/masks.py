"""Reading files of masks, and the labels of pixels that are not classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from vitrail.errors import VitrailError
from vitrail.image_files import FORMATS, decoding

IGNORED = 255  # the label of a pixel that is not judged
UNSEEN = -1  # the class of a pixel of which nothing is known, as a shift moved it out of the image


def read_mask(path: str | Path) -> np.ndarray:
    """Decode a mask file as it is stored: (H, W) uint8.

    Raises VitrailError if the file is damaged or gone, or holds colours rather than labels.
    """
    with decoding("mask", path), Image.open(path, formats=FORMATS) as image:
        if image.mode not in ("L", "P"):
            raise VitrailError(f"mask {path} holds colours ({image.mode}), not labels")
        return np.array(image)
