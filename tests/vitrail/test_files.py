"""Files are whole or not there."""

import os

import pytest

from vitrail.errors import VitrailError
from vitrail.files import atomic_path, write_atomically


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    file = tmp_path / "table.csv"
    write_atomically(file, "old")

    def fail():
        with atomic_path(file) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_full_disk_is_told_in_one_sentence(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(VitrailError, match=r"cannot write .*table.csv: No space left on device"):
        write_atomically(tmp_path / "table.csv", "new")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_file_is_told_in_one_sentence(tmp_path):
    (tmp_path / "results").write_text("")
    with pytest.raises(VitrailError, match="choose another folder"):
        write_atomically(tmp_path / "results" / "table.csv", "new")
