"""Mistakes reach people as one sentence and status 2."""

import errno
import re
import tomllib

import pytest
from torch.utils.data import DataLoader

from vitrail.errors import HANDFUL, VitrailError, did_you_mean, exit_on_error, needs_package


def test_the_closest_word_is_suggested():
    assert did_you_mean("lapotp", ["laptop", "full"]) == "; did you mean 'laptop'?"


def test_a_word_is_completed_before_another_is_suggested():
    known = [
        "a_swin_tiny_patch4_window7_224",
        "a_swin_tiny_patch4_window7_224_large",
        "swin_s3_tiny",
    ]
    assert did_you_mean("a_swin_tiny", known) == f"; did you mean '{known[0]}'?"


def test_a_word_with_the_same_beginning_comes_before_one_with_the_same_end():
    known = ["gcvit_tiny", "vit_tiny_patch16_224", "vit_tiny_patch16_224_large"]
    assert did_you_mean("vit_tinyy", known) == f"; did you mean '{known[1]}'?"


def test_a_whole_word_counts_as_well_as_its_beginning():
    assert did_you_mean("max_time", ["max_runtime", "max_threads"]) == (
        "; did you mean 'max_runtime'?"
    )


def test_without_a_close_word_all_of_few_are_listed():
    assert did_you_mean("zzz", ["laptop", "full"]) == "; known: full, laptop"
    assert did_you_mean("zzz", ["", "full"]) == "; known: '', full"


def test_of_many_words_without_a_close_one_those_most_alike_are_listed():
    known = [f"{name}-cifar10-circular" for name in ("a_swin_t", "a_cvt_13", *map(str, range(100)))]
    told = did_you_mean("circular", known)
    assert all(f"{digit}-cifar10-circular" in told for digit in range(10))
    assert told.count(",") + 1 == HANDFUL


def test_a_mistake_exits_with_two_and_no_traceback(capsys):
    def main():
        raise VitrailError("the scale 'x' is unknown")

    with pytest.raises(SystemExit) as exit_:
        exit_on_error(main)
    assert exit_.value.code == 2
    assert capsys.readouterr().err == "vitrail: the scale 'x' is unknown\n"


def test_a_file_of_others_that_may_not_be_read_is_a_sentence(capsys):
    def main():
        raise PermissionError(errno.EACCES, "Permission denied", "results/table1.csv")

    with pytest.raises(SystemExit) as exit_:
        exit_on_error(main)
    assert exit_.value.code == 2
    told = capsys.readouterr().err
    assert "results/table1.csv" in told
    assert told.count("\n") == 1


class Damaged:
    """A dataset whose image cannot be read."""

    def __len__(self):
        return 1

    def __getitem__(self, index):
        try:
            raise OSError("broken data stream")
        except OSError as error:
            raise VitrailError(f"cannot read image {index}.jpg ({error}); restore it") from error


def test_a_package_that_is_not_installed_is_named_in_one_line(capsys):
    with pytest.raises(SystemExit) as exit_:
        exit_on_error(lambda: __import__("no_such_package"))
    assert exit_.value.code == 2
    told = capsys.readouterr().err
    assert "no_such_package" in told
    assert told.count("\n") == 1


def test_a_package_is_said_to_come_with_the_extra_that_has_it(root):
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    for package, distribution in (("typer", "typer"), ("mmseg.apis", "onedl-mmsegmentation")):
        (extra,) = re.findall(r"'\.\[(\w+)\]'", needs_package(package))
        asked = project["optional-dependencies"][extra]
        assert [line for line in asked if line.startswith(distribution)]


def test_a_module_of_ours_that_is_not_there_is_a_bug():
    with pytest.raises(ModuleNotFoundError):
        exit_on_error(lambda: __import__("vitrail.no_such_module"))


def test_a_mistake_met_by_a_loaders_worker_is_told_in_its_own_sentence(capsys):
    with pytest.raises(SystemExit):
        exit_on_error(lambda: list(DataLoader(Damaged(), num_workers=1)))
    told = "vitrail: cannot read image 0.jpg (broken data stream); restore it\n"
    assert capsys.readouterr().err == told


def test_a_bug_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        exit_on_error(lambda: 1 / 0)
