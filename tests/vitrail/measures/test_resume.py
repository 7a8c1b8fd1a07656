"""Rows come back with the bits that were appended, and only to those that ask for the same."""

import pytest
import torch

from vitrail.errors import VitrailError
from vitrail.measures.resume import ResumeFile


def columns(count, start=0):
    """Features in half precision, labels, and whether they are right."""
    random = torch.Generator().manual_seed(start)
    features = torch.randn(count, 2, 3, generator=random).bfloat16()
    labels = torch.arange(start, start + count)
    return [features, labels, labels % 2 == 0]


def same(found, wanted):
    return len(found) == len(wanted) and all(map(torch.equal, found, wanted))


def test_rows_of_several_columns_come_back_as_they_were(tmp_path):
    file, first, second = tmp_path / "rows", columns(4), columns(3, start=4)
    rows = ResumeFile(file, {"of": "features"})
    assert rows.read() == []
    rows.append(*first)
    begun = file.read_bytes()
    again = ResumeFile(file, {"of": "features"})
    assert same(again.read(), first)
    again.append(*second)
    assert file.read_bytes().startswith(begun)
    both = [torch.cat(pair) for pair in zip(first, second, strict=True)]
    assert same(ResumeFile(file, {"of": "features"}).read(), both)


def test_what_is_behind_the_last_whole_batch_is_cut_off_unless_it_is_the_end(tmp_path):
    file, given = tmp_path / "rows", columns(7)
    ResumeFile(file, {}).append(*given)
    with file.open("ab") as half:
        half.write(b"half a row")
    assert same(ResumeFile(file, {}).read(4, total=7), given)
    assert same(ResumeFile(file, {}).read(4, total=9), [column[:4] for column in given])
    rows = ResumeFile(file, {})
    assert len(rows.read()[0]) == 4
    rows.append(*[column[4:] for column in given])
    assert same(ResumeFile(file, {}).read(), given)


def test_rows_in_another_order_are_refused(tmp_path):
    file = tmp_path / "rows"
    ResumeFile(file, {}).append(*columns(2))
    ResumeFile(file, {}).append(*columns(2))  # as two processes at once would
    with pytest.raises(VitrailError, match="is damaged"):
        ResumeFile(file, {}).read()
