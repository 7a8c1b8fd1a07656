"""Configurations of segmenters are found, and read as the code of all their files."""

import pytest

from replication.config.python_source import config_files, strings_in
from vitrail.errors import VitrailError


@pytest.fixture
def write(tmp_path):
    folder = tmp_path / "configs" / "segmentation"
    folder.mkdir(parents=True)

    def write(name, text):
        path = folder / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return tmp_path

    return write


def test_a_configuration_goes_by_the_name_of_its_file(write):
    root = write("upernet", "x = 1")
    assert config_files("upernet", root) == {"upernet.py": "x = 1"}
    with pytest.raises(VitrailError, match="'uppernet' is unknown; did you mean 'upernet'"):
        config_files("uppernet", root)


def test_mmsegmentations_own_are_pinned_by_its_version(tmp_path):
    assert config_files("mmseg::swin/x.py", tmp_path) == {}


def test_what_it_inherits_comes_before_it_once(write):
    write("parts/base", "lr = 1.0")
    write("left", "_base_ = './parts/base.py'")
    write("right", "_base_ = ['mmseg::a/b.py', 'parts/base.py']")
    root = write("child", "_base_ = ['left.py', 'right.py']\nx = 2")
    assert list(config_files("child", root).items()) == [
        ("parts/base.py", "lr = 1.0"),
        ("left.py", "_base_ = './parts/base.py'"),
        ("right.py", "_base_ = ['mmseg::a/b.py', 'parts/base.py']"),
        ("child.py", "_base_ = ['left.py', 'right.py']\nx = 2"),
    ]
    write("parts/other", "_base_ = '../left.py'")
    write("child", "_base_ = 'parts/other.py'")
    assert list(config_files("child", root)) == [
        *("parts/base.py", "left.py", "parts/other.py", "child.py")
    ]


def test_comments_docstrings_and_layout_are_left_out(write):
    root = write("child", "x = dict(lr=2)")
    files = config_files("child", root)
    write("child", '"""What."""\n# why\nx  =  dict(\n    lr=2,  # high\n)')
    assert config_files("child", root) == files


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = ", "is not valid Python"),
        ("_base_ = 'none.py'", r"cannot read .*configs/segmentation/none\.py"),
        ("_base_ = ['child.py']", r"child\.py inherits itself"),
        ("_base_ = ['./parts/../child.py']", r"child\.py inherits itself"),
        ("_base_ = [f'{x}.py']", "as plain strings"),
        ("_base_ = '../datasets.py'", r"child\.py inherits .*datasets\.py; put that file into"),
        ("_base_ = '/etc/base.py'", r"child\.py inherits /etc/base\.py; put that file into"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(write, text, sentence):
    with pytest.raises(VitrailError, match=sentence):
        config_files("child", write("child", text))


def test_strings_are_found_wherever_they_stand():
    code = "x = dict(type='Head', of=[{'y': ('Neck', 3)}])\ndef f(name='Late'): return name"
    assert strings_in(code) == {"Head", "y", "Neck", "Late"}
