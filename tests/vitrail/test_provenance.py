import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import begin, git
from vitrail import provenance as module
from vitrail.errors import VitrailError
from vitrail.provenance import (
    changed_files,
    commit,
    device_name,
    duration,
    is_ancestor,
    provenance,
    require_own_package,
    uncommitted,
)


@pytest.fixture
def repository(tmp_path, monkeypatch) -> Path:
    (tmp_path / "tracked").write_text("one")
    begin(tmp_path)
    monkeypatch.setattr(module, "PACKAGE", tmp_path / "src" / "vitrail")
    return tmp_path


def test_the_commit_is_the_head_of_the_checkout_that_is_imported(repository):
    assert commit() == git(repository, "rev-parse", "HEAD")


@pytest.mark.parametrize("name", ["tracked", "new", "folder/new"])
def test_a_changed_or_a_new_file_makes_the_commit_dirty(repository, name):
    git(repository, "config", "status.showUntrackedFiles", "no")
    (repository / name).parent.mkdir(exist_ok=True)
    (repository / name).write_text("two")
    assert commit() == git(repository, "rev-parse", "HEAD") + "-dirty"


def test_a_renamed_file_is_one_that_is_gone_and_one_that_is_new(repository):
    git(repository, "mv", "tracked", "größer name")
    assert sorted(changed_files()) == ["größer name", "tracked"]


def test_an_ignored_file_leaves_the_commit_clean(repository):
    (repository / ".git" / "info" / "exclude").write_text("runs/\n")
    (repository / "runs").mkdir()
    (repository / "runs" / "log").write_text("x")
    assert commit() == git(repository, "rev-parse", "HEAD")


def test_a_commit_is_dirty_where_git_cannot_tell(repository):
    (repository / ".git" / "index").write_text("damaged")
    assert commit() == git(repository, "rev-parse", "HEAD") + "-dirty"


def test_published_results_leave_the_commit_clean(repository):
    (repository / "results" / "published").mkdir(parents=True)
    (repository / "results" / "published" / "report.md").write_text("new")
    assert commit() == git(repository, "rev-parse", "HEAD")


def test_an_installed_copy_below_a_repository_has_no_commit(repository, monkeypatch):
    monkeypatch.setattr(module, "PACKAGE", repository / ".venv" / "lib" / "packages" / "vitrail")
    assert commit() is None


def test_outside_a_repository_there_is_no_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PACKAGE", tmp_path / "src" / "vitrail")
    assert commit() is None


def test_a_checkout_refuses_the_package_of_another(repository, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    require_own_package(other)  # has none of its own
    (other / "src" / "vitrail").mkdir(parents=True)
    with pytest.raises(VitrailError, match=r"is imported from .*, and this checkout has its own"):
        require_own_package(other)
    (repository / "src" / "vitrail").mkdir(parents=True)
    require_own_package(repository)


def test_without_git_there_is_no_commit(repository, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert commit() is None


def test_provenance_names_versions_and_device_and_keeps_what_is_given():
    facts = provenance("cpu", started="2026-01-01T00:00:00+00:00", seed=3)
    known = {"python", "packages", "commit", "device", "tf32"}
    assert known | {"started", "seed"} == facts.keys()
    assert facts["packages"]["torch"].startswith("2.")
    assert facts["device"].startswith("cpu: ")
    assert "thread" in facts["device"]
    json.dumps(facts)


def test_provenance_says_nothing_about_the_person_or_the_machine():
    text = json.dumps(provenance("cpu"))
    assert socket.gethostname() not in text
    assert str(Path.home()) not in text
    assert str(Path.cwd()) not in text


def test_the_device_of_a_gpu_is_its_own_name(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"H200 ({device})")
    assert device_name("cuda:0") == "H200 (cuda:0)"


def test_the_device_of_a_processor_names_its_vector_instructions(monkeypatch):
    """Two processors of one name can have different ones, and then round differently."""
    import torch

    told = set()
    for instructions in ("AVX2", "AVX512"):
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda it=instructions: it)
        assert f" ({instructions}), " in device_name("cpu")
        told.add(device_name("cpu"))
    assert len(told) == 2


@pytest.mark.slow
def test_peak_memory_grows_with_what_is_allocated():
    """In a process of its own, as a peak that many tests have left is several gigabytes."""
    grown = """
import torch
from vitrail.provenance import peak_memory_bytes

before = peak_memory_bytes("cpu")
block = torch.ones(before // 4 + 25_000_000)  # four bytes each: beyond any peak so far
assert peak_memory_bytes("cpu") > before
"""
    subprocess.run([sys.executable, "-c", grown], check=True)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.25, "0.2 s"),
        (42.4, "42 s"),
        (420, "7 min"),
        (3599, "1 h 00 min"),
        (11100, "3 h 05 min"),
        (216000, "2.5 days"),
    ],
)
def test_durations_are_written_for_people(seconds, text):
    assert duration(seconds) == text


def test_an_ancestor_of_the_head_is_told_from_another_commit(repository):
    first = git(repository, "rev-parse", "HEAD")
    git(repository, "checkout", "-q", "-b", "side")
    git(repository, "commit", "-q", "--allow-empty", "-m", "side")
    side = git(repository, "rev-parse", "HEAD")
    git(repository, "checkout", "-q", "-")
    git(repository, "commit", "-q", "--allow-empty", "-m", "second")
    assert is_ancestor(first)
    assert not is_ancestor(side)
    assert not is_ancestor("0" * 40)


def test_the_uncommitted_files_of_a_folder_are_named(repository):
    (repository / "results").mkdir()
    (repository / "results" / "größer.csv").write_text("x")
    (repository / "tracked").write_text("two")
    assert uncommitted(repository / "results") == ["results/größer.csv"]
