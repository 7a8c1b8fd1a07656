"""Configurations of segmenters are found, and their digest follows what they say."""

import pytest

from replication.plan.source import config_digest, config_path
from vitrail.errors import VitrailError


@pytest.fixture
def write(tmp_path):
    folder = tmp_path / "configs" / "segmentation"
    folder.mkdir(parents=True)

    def write(name, text):
        (folder / f"{name}.py").write_text(text)
        return tmp_path

    return write


def test_a_configuration_goes_by_the_name_of_its_file(write):
    root = write("upernet", "x = 1")
    assert config_path("upernet", root) == str(root / "configs/segmentation/upernet.py")
    with pytest.raises(VitrailError, match="'uppernet' is unknown; did you mean 'upernet'"):
        config_path("uppernet", root)


def test_mmsegmentations_own_are_pinned_by_its_version():
    assert config_path("mmseg::swin/x.py") == "mmseg::swin/x.py"
    assert config_digest("mmseg::swin/x.py", None) == ""


def test_the_digest_follows_what_it_says_and_what_it_inherits(write):
    root = write("base", "lr = 1.0")
    write("child", "_base_ = ['base.py', 'mmseg::a/b.py']\nx = 2")
    digest = config_digest("child", root)
    write("child", '"""What."""\n# why\n_base_ = [\'base.py\', \'mmseg::a/b.py\']\nx  =  2')
    assert config_digest("child", root) == digest
    write("base", "lr = 2.0")
    assert config_digest("child", root) != digest
    write("base", "lr = 1.0")
    write("child", "_base_ = ['base.py', 'mmseg::a/b.py']\nx = 3")
    assert config_digest("child", root) != digest


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = ", "is not valid Python"),
        ("_base_ = 'none.py'", "cannot read"),
        ("_base_ = ['child.py']", "inherits itself"),
        ("_base_ = [f'{x}.py']", "as plain strings"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(write, text, sentence):
    with pytest.raises(VitrailError, match=sentence):
        config_digest("child", write("child", text))
