"""Reading files of images and masks; one that cannot be decoded is named in the error."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image

from vitrail.errors import VitrailError, first_line

FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""Pillow decides by a file's content, and would start Ghostscript for PostScript called .jpg."""
READ = {
    *(".apng", ".bmp", ".gif", ".j2c", ".j2k", ".jfif", ".jp2", ".jpc", ".jpe", ".jpeg"),
    *(".jpf", ".jpg", ".jpx", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"),
}
"""How names of files of these formats end, in lower case."""
UNREAD = {
    *(".arw", ".avif", ".cr2", ".cr3", ".dcm", ".dng", ".exr", ".hdr", ".heic", ".heif", ".ico"),
    *(".jxl", ".nef", ".psd", ".svg", ".svs", ".tga"),
}
"""How names of images of other formats end."""
IGNORED = 255  # the label of a pixel that is not judged
ORIENTATION = ExifTags.Base.Orientation  # 1 is upright, 2 to 8 are turned or mirrored
UNSEEN = -1  # the class of a pixel of which nothing is known, as a shift moved it out of the image


def is_image(name: str) -> bool:
    """Whether the name of a file is that of an image of a format that is read."""
    return os.path.splitext(name)[1].lower() in READ


def read_image(path: str | Path) -> Image.Image:
    """Decode an image file as RGB; 16-bit greys are scaled to 8 bits.

    Raises VitrailError if the file is damaged or gone, or its values have no known range.
    """
    with _decoding("image", path), Image.open(path, formats=FORMATS) as image:
        # `convert` would clip 16 bits to white; Pillow scales a grey PPM's to them in 32.
        if image.mode.startswith("I;16") or (image.mode, image.format) == ("I", "PPM"):
            wide = np.asarray(image).astype(np.float32)
            return Image.fromarray(np.round(wide / 257).astype(np.uint8)).convert("RGB")
        if image.mode in ("I", "F"):
            raise VitrailError(
                f"image {path} has 32 bits a pixel, whose range is unknown; save it with 8 or 16"
            )
        return image.convert("RGB")


def is_turned(path: str | Path) -> bool:
    """Say whether a file's EXIF orientation asks viewers to turn or mirror it.

    `read_image` does not. A file that cannot be opened asks for nothing.
    """
    try:
        with Image.open(path, formats=FORMATS) as image:
            # Of a PNG all pixels would be decoded to look for it.
            return image.format != "PNG" and image.getexif().get(ORIENTATION) in range(2, 9)
    except Exception:  # Pillow raises errors of many kinds for damaged files, see `_decoding`
        return False


def read_mask(path: str | Path) -> np.ndarray:
    """Decode a mask file as it is stored: (H, W) uint8.

    Raises VitrailError if the file is damaged or gone, or holds colours rather than labels.
    """
    with _decoding("mask", path), Image.open(path, formats=FORMATS) as image:
        if image.mode not in ("L", "P"):
            raise VitrailError(f"mask {path} holds colours ({image.mode}), not labels")
        return np.array(image)


@contextmanager
def _decoding(what: str, path: str | Path) -> Iterator[None]:
    try:
        yield
    except VitrailError:
        raise
    except Image.DecompressionBombError:
        raise VitrailError(
            f"{what} {path} has more than {2 * (Image.MAX_IMAGE_PIXELS or 0):,} pixels, the most "
            "that are read; make it smaller"
        ) from None
    except Exception as error:  # a damaged file fails in as many ways as it has bytes
        raise VitrailError(
            f"cannot read {what} {path} ({first_line(error)}); replace it by a good copy"
        ) from error
