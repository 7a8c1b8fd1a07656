"""Files are whole or not there."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

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


def test_a_file_system_that_cannot_sync_folders_is_written_to(tmp_path, monkeypatch):
    fsync = os.fsync

    def refuse(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    write_atomically(tmp_path / "table.csv", "new")
    assert (tmp_path / "table.csv").read_text() == "new"


def test_a_folder_that_is_a_file_is_told_in_one_sentence(tmp_path):
    (tmp_path / "results").write_text("")
    with pytest.raises(VitrailError, match="choose another folder"):
        write_atomically(tmp_path / "results" / "table.csv", "new")


START_A_FORK_SERVER = """
import multiprocessing, tempfile
from vitrail.files import shorten_socket_paths
{shorten}
if __name__ == "__main__":
    child = multiprocessing.get_context("forkserver").Process(target=print)
    child.start()
    child.join()
    print(child.exitcode, tempfile.gettempdir())
"""


@pytest.mark.parametrize("shorten", ["", "shorten_socket_paths()"])
def test_multiprocessing_starts_below_a_tmpdir_of_143_characters(tmp_path, shorten):
    folder = Path(str(tmp_path) + "/" + "a" * (142 - len(str(tmp_path))))
    folder.mkdir()
    assert len(str(folder)) == 143
    script = tmp_path / "script.py"
    script.write_text(START_A_FORK_SERVER.format(shorten=shorten))
    environment = {**os.environ, "TMPDIR": str(folder)}
    ended = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True
    )
    if shorten:
        assert ended.stdout.split() == ["0", str(folder)], ended.stderr
        assert not list(folder.iterdir())
    else:
        assert "AF_UNIX path too long" in ended.stderr
