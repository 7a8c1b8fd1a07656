"""The digest of decoded images, the same in whatever format and files they are kept."""

# decides no number

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image


def images_sha256(images: Iterable[tuple[Image.Image, bytes]]) -> str:
    """Return the SHA-256 of images in their order, in hex digits.

    Of each image its height and its width count, as little-endian integers of 4 bytes, then its
    bytes by rows (three of each pixel, where it is RGB), then those that come with it: none, or
    those of its label or mask.
    """
    digest = hashlib.sha256()
    for image, label in images:
        for side in (image.height, image.width):
            digest.update(side.to_bytes(4, "little"))
        digest.update(image.tobytes())
        digest.update(label)
    return digest.hexdigest()
