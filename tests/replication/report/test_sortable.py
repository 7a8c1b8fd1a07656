"""The page to sort and to filter shows the table's numbers, and fetches nothing."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from replication.claims.comparison import compare
from replication.config.paper import ShownColumn
from replication.report.formatting import table_of
from replication.report.html_report import WEB
from replication.report.sortable import as_sortable
from vitrail.errors import REFUSED


class Cells(HTMLParser):
    """The texts of the table's body, and the titles of abbreviations."""

    def __init__(self, page):
        super().__init__()
        self.rows, self.titles, self.inside = [], [], False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.inside = tag == "tbody" or (self.inside and tag != "script")
        if self.inside and tag == "tr":
            self.rows.append([])
        if self.inside and tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "abbr":
            self.titles.append(dict(attrs)["title"])

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "tbody"

    def handle_data(self, data):
        if self.inside and self.rows and data.strip():
            self.rows[-1][-1] += data


@pytest.fixture
def page(build):
    columns = (ShownColumn(label="x", group="One"), ShownColumn(label="y", group="Two"))
    names = [column.full_label for column in columns]
    cells = [build.cell(row, name) for row in ("A", "<B>") for name in names]
    artifact = build.table(*cells, columns=columns)
    seed = {f"{row}/{name}": 10.0 for row in ("A", "<B>") for name in names}
    seed |= {"A/Two / y": None, "A/Two / y" + REFUSED: 'it has "no" table'}
    return as_sortable(table_of(artifact, compare(artifact, build.measured(seed))), "index.html")


def test_every_number_is_in_its_place_and_a_refusal_says_why(page):
    found = Cells(page)
    assert found.rows == [["A", "10.0", "n/a"], ["<B>", "10.0", "10.0"]]
    assert found.titles == ['it has "no" table']


def test_nothing_is_fetched(page):
    assert not re.search(r"\b(src|@import|fetch|XMLHttpRequest)\b", page)
    assert set(re.findall(r'href="([^"]*)"', page)) == {"index.html"}


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_rows_are_sorted_by_numbers_and_filtered(tmp_path):
    """What has no number stays at the end."""
    run = Path(__file__).with_name("sort.js").read_text(encoding="utf-8")
    script = (WEB / "sortable.js").read_text(encoding="utf-8")
    (tmp_path / "sort.cjs").write_text(run.replace("SCRIPT", f"{{{script}}}"))
    done = subprocess.run(
        ["node", "sort.cjs"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    order = ["cba", "bca", "abc", "cba"]
    assert json.loads(done.stdout) == [*order, "c", "a", "bac", "3 of 3 rows"]
