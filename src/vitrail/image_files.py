"""Files of images: finding and decoding them; one that cannot be decoded is named in the error."""

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
ORIENTATION = ExifTags.Base.Orientation  # 1 is upright, 2 to 8 are turned or mirrored


def image_files(folder: Path) -> Iterator[str]:
    """Yield the `visible_files` below a folder whose names are those of images that are read."""
    return filter(is_image, visible_files(folder))


def visible_files(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[str]:
    """Yield the files below a folder that are not hidden, also of folders that are links.

    Hidden is what begins with a dot, such as the copies of notebooks in ``.ipynb_checkpoints``, and
    ``__MACOSX``, which archives made on macOS hold. A link to a folder that holds it would never
    end, and is not followed. Nor is one to a folder of `above`, the resolved folders on the way.

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
    """Whether a file or folder of this name is hidden, as `visible_files` says."""
    return name.startswith(".") or name == "__MACOSX"


def is_image(name: str) -> bool:
    """Whether the name of a file is that of an image of a format that is read."""
    return os.path.splitext(name)[1].lower() in READ


def read_image(path: str | Path) -> Image.Image:
    """Decode an image file as RGB; 16-bit greys are scaled to 8 bits.

    Raises VitrailError if the file is damaged or gone, or its values have no known range.
    """
    with decoding("image", path), Image.open(path, formats=FORMATS) as image:
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
    except Exception:  # Pillow raises errors of many kinds for damaged files, see `decoding`
        return False


@contextmanager
def decoding(what: str, path: str | Path) -> Iterator[None]:
    """Name the file, which is a `what`, in any error of decoding it.

    Raises:
        VitrailError: the file is damaged or gone, or has more pixels than are read.
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
