"""Published checkpoints come from their URL, and are what their name says."""

import hashlib

import pytest

from vitrine.errors import VitrineError
from vitrine.training.weights import download

CONTENT = b"a checkpoint"
DIGITS = hashlib.sha256(CONTENT).hexdigest()[:8]


@pytest.fixture
def url(tmp_path):
    (tmp_path / "published.pth").write_bytes(CONTENT)
    return (tmp_path / "published.pth").as_uri()


@pytest.mark.parametrize("name", [f"swin-{DIGITS}.pth", "swin_tiny.pth"])
def test_a_checkpoint_is_fetched(url, tmp_path, name):
    download(url, tmp_path / "weights" / name)
    assert (tmp_path / "weights" / name).read_bytes() == CONTENT


def test_a_checkpoint_that_is_not_what_its_name_says_is_not_kept(url, tmp_path):
    with pytest.raises(VitrineError, match=r"cannot be fetched \(invalid hash value"):
        download(url, tmp_path / "swin-00000000.pth")
    assert not (tmp_path / "swin-00000000.pth").exists()


def test_a_url_without_an_answer_is_one_sentence(tmp_path):
    missing = (tmp_path / "none.pth").as_uri()
    with pytest.raises(VitrineError, match=r"none\.pth cannot be fetched .* place the file as"):
        download(missing, tmp_path / "swin.pth")
