"""Files of images are found and decoded, whatever they are called."""

from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image, ImageOps

from vitrail.errors import VitrailError
from vitrail.image_files import (
    FORMATS,
    ORIENTATION,
    READ,
    UNREAD,
    is_turned,
    read_image,
    visible_files,
)

PIXELS = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)
LOSSLESS = ("BMP", "PNG", "PPM", "TIFF")


def files_below(folder):
    """The visible files by their paths within the folder."""
    return {str(Path(file).relative_to(folder)) for file in visible_files(folder)}


@pytest.mark.parametrize("kind", LOSSLESS)
def test_an_image_is_read_whatever_it_is_called(tmp_path, kind):
    path = tmp_path / "image.jpg"
    Image.fromarray(PIXELS).save(path, kind)
    assert (np.asarray(read_image(path)) == PIXELS).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["GIF", "JPEG", "JPEG2000", "WEBP"])
def test_other_formats_are_read(tmp_path, kind):
    path = tmp_path / "image"
    Image.fromarray(PIXELS).save(path, kind)
    assert read_image(path).size == (8, 6)


def test_postscript_starts_no_interpreter(tmp_path, monkeypatch):
    path = tmp_path / "image.jpg"
    Image.fromarray(PIXELS).save(path, "EPS")
    started = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *args: started.append(args))
    with pytest.raises(VitrailError, match=r"cannot read \w+ .*image\.jpg"):
        read_image(path)
    assert not started
    assert "EPS" not in FORMATS


def test_the_formats_that_are_read_have_all_of_their_suffixes():
    """But for .pfm, whose pixels have 32 bits."""
    suffixes = {name for name, kind in Image.registered_extensions().items() if kind in FORMATS}
    assert suffixes - {".pfm"} == READ
    assert not READ & UNREAD


@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_image_is_turned_where_its_exif_moves_pixels(tmp_path, orientation):
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    Image.fromarray(PIXELS).save(tmp_path / "photo.jpg", exif=exif)
    with Image.open(tmp_path / "photo.jpg") as image:
        moved = np.asarray(ImageOps.exif_transpose(image)).tolist() != np.asarray(image).tolist()
    assert is_turned(tmp_path / "photo.jpg") == moved
    assert read_image(tmp_path / "photo.jpg").size == (8, 6)  # as it is stored


def test_an_image_that_cannot_be_opened_is_not_turned(tmp_path):
    (tmp_path / "damaged.jpg").write_bytes(b"nothing")
    assert not is_turned(tmp_path / "damaged.jpg")
    assert not is_turned(tmp_path / "none.jpg")


def test_an_image_of_too_many_pixels_is_not_called_damaged(tmp_path, monkeypatch):
    Image.fromarray(PIXELS).save(tmp_path / "map.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)  # Pillow refuses twice as many
    with pytest.raises(VitrailError, match=r"map\.png has more than 40 pixels.*make it smaller"):
        read_image(tmp_path / "map.png")


def test_hidden_files_and_folders_are_none_of_a_datasets(tmp_path):
    seen = ["cat/1.png", "cat/deep/2.png"]
    unseen = ["cat/.ipynb_checkpoints/1-checkpoint.png", "__MACOSX/cat/._1.png", ".DS_Store"]
    for name in [*seen, *unseen, "cat/._1.png"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert sorted(visible_files(tmp_path)) == [str(tmp_path / name) for name in seen]


def test_a_link_to_a_folder_that_holds_it_is_not_followed(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "file").touch()
    (tmp_path / "one" / "around").symlink_to(tmp_path)
    (tmp_path / "two").symlink_to(tmp_path / "one")
    assert files_below(tmp_path) == {"one/file", "two/file"}


def test_folders_that_link_to_each_other_are_listed_once_on_each_way(tmp_path):
    for name, other in (("one", "two"), ("two", "one")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
        (tmp_path / name / other).symlink_to(tmp_path / other)
    assert files_below(tmp_path) == {"one/file", "one/two/file", "two/file", "two/one/file"}
