"""Find and decode image files. The error for a file that cannot be decoded names the file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image

from vitrail.errors import VitrailError, first_line

FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""Formats that are decoded. Pillow chooses the decoder by a file's content, not by its name:
without this list it would start Ghostscript for a PostScript file with the suffix .jpg."""
READ = {
    *(".apng", ".bmp", ".gif", ".j2c", ".j2k", ".jfif", ".jp2", ".jpc", ".jpe", ".jpeg"),
    *(".jpf", ".jpg", ".jpx", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"),
}
"""Suffixes of files of these formats, in lower case."""
UNREAD = {
    *(".arw", ".avif", ".cr2", ".cr3", ".dcm", ".dng", ".exr", ".hdr", ".heic", ".heif", ".ico"),
    *(".jxl", ".nef", ".psd", ".svg", ".svs", ".tga"),
}
"""Suffixes of images of other formats, which are not decoded."""
ORIENTATION = ExifTags.Base.Orientation  # 1 is upright, 2 to 8 are turned or mirrored


def image_files(folder: Path) -> Iterator[str]:
    """Yield the paths of the `visible_files` below a folder whose suffix is in `READ`."""
    return filter(is_image, visible_files(folder))


def visible_files(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[str]:
    """Yield the paths of the files below a folder that are not hidden, and follow links to folders.

    Hidden are names that begin with a dot, such as ``.ipynb_checkpoints`` with copies of notebooks,
    and ``__MACOSX``, a folder in archives that are made on macOS. A link to a folder that contains
    the link would lead to an endless recursion and is not followed. For this, `above` has the
    resolved paths of the folders that the recursion has come through.

    Raises:
        OSError: a folder cannot be read.
    """
    here, folders = folder.resolve(), []
    way = above | {here}
    with os.scandir(folder) as entries:
        visible = sorted((e for e in entries if not is_hidden(e.name)), key=lambda e: e.name)
    for entry in visible:
        if not entry.is_dir():
            yield entry.path
            continue
        place = Path(entry.path).resolve()
        if place not in way and not here.is_relative_to(place):
            folders.append(Path(entry.path))
    for below in folders:
        yield from visible_files(below, way)


def is_hidden(name: str) -> bool:
    """Whether a file or folder of this name is hidden; see `visible_files`."""
    return name.startswith(".") or name == "__MACOSX"


def is_image(name: str) -> bool:
    """Whether the suffix of a file's name is in `READ`."""
    return os.path.splitext(name)[1].lower() in READ


def read_image(path: str | Path) -> Image.Image:
    """Decode an image file as RGB; 16-bit greys are scaled to 8 bits.

    Raises VitrailError if the file is damaged or missing, or has 32-bit values of unknown range.
    """
    with decoding("image", path), Image.open(path, formats=FORMATS) as image:
        # `convert` would clip 16-bit values to white. Pillow reads a grey PPM of more than 8 bits
        # into 32 bits, with values scaled to 16 bits.
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

    `read_image` ignores this orientation. The result is False for a PNG, and for a file that cannot
    be opened.
    """
    try:
        with Image.open(path, formats=FORMATS) as image:
            # In a PNG, Pillow would decode all pixels to find the orientation.
            return image.format != "PNG" and image.getexif().get(ORIENTATION) in range(2, 9)
    except Exception:  # Pillow raises errors of many kinds for damaged files, see `decoding`
        return False


@contextmanager
def decoding(what: str, path: str | Path) -> Iterator[None]:
    """Raise any error of decoding a file as a VitrailError that names the file.

    `what` is the kind of file, for the message.

    Raises:
        VitrailError: the file is damaged or missing, or has more pixels than Pillow's limit.
    """
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
