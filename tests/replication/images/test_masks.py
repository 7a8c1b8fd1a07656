"""Files of images and masks: what is read, and what is refused by its name."""

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from replication.images.masks import read_mask
from vitrail.errors import VitrailError

PIXELS = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)


def test_a_mask_is_read_as_it_is_stored(tmp_path):
    path = tmp_path / "mask.png"
    Image.fromarray(PIXELS[..., 0]).save(path)
    assert (read_mask(path) == PIXELS[..., 0]).all()


def test_postscript_starts_no_interpreter(tmp_path, monkeypatch):
    path = tmp_path / "image.jpg"
    Image.fromarray(PIXELS).save(path, "EPS")
    started = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *args: started.append(args))
    with pytest.raises(VitrailError, match=r"cannot read \w+ .*image\.jpg"):
        read_mask(path)
    assert not started
