"""Files of images and masks: what is read, and what is refused by its name."""

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from vitrail.errors import VitrailError
from vitrail.images.decoding import FORMATS, read_image, read_mask

PIXELS = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)
LOSSLESS = ("BMP", "PNG", "PPM", "TIFF")


@pytest.mark.parametrize("kind", LOSSLESS)
def test_an_image_is_read_whatever_it_is_called(tmp_path, kind):
    path = tmp_path / "image.jpg"
    Image.fromarray(PIXELS).save(path, kind)
    assert (np.asarray(read_image(path)) == PIXELS).all()


@pytest.mark.parametrize("kind", ["GIF", "JPEG", "JPEG2000", "WEBP"])
def test_other_formats_are_read(tmp_path, kind):
    path = tmp_path / "image"
    Image.fromarray(PIXELS).save(path, kind)
    assert read_image(path).size == (8, 6)


def test_a_mask_is_read_as_it_is_stored(tmp_path):
    path = tmp_path / "mask.png"
    Image.fromarray(PIXELS[..., 0]).save(path)
    assert (read_mask(path) == PIXELS[..., 0]).all()


@pytest.mark.parametrize("read", [read_image, read_mask])
def test_postscript_starts_no_interpreter(tmp_path, monkeypatch, read):
    path = tmp_path / "image.jpg"
    Image.fromarray(PIXELS).save(path, "EPS")
    started = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *args: started.append(args))
    with pytest.raises(VitrailError, match=r"cannot read \w+ .*image\.jpg"):
        read(path)
    assert not started
    assert "EPS" not in FORMATS
