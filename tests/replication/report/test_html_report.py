"""The report as a page: it says what the CSVs say, needs no network, and its filters work."""

import html
import json
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import pytest

from replication.report.html_report import as_html
from replication.report.results import count_papers, results_of
from tests.conftest import ROOT, catalog_of

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
WITH_BROWSER = pytest.mark.skipif(BROWSER is None, reason="needs chromium or google-chrome")
LOOK = Path(__file__).with_name("look.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def results():
    catalog = catalog_of("laptop")
    return results_of(catalog.said, catalog.artifacts, ROOT / "results" / "published" / "laptop")


@pytest.fixture(scope="module")
def text(results):
    return as_html(results)


@pytest.fixture
def look(tmp_path, text):
    """Open the page in a browser at a width, with filters in its address; say what is seen."""

    def opened(width=1280, anchor="", dark=False, **filters):
        (tmp_path / "report.html").write_text(text)
        address = "report.html" + ("?" + urlencode(filters) if filters else "") + anchor
        frame = f'<iframe src="{address}" width="{width}" height="900"></iframe>'
        (tmp_path / "frame.html").write_text(f"<body>{frame}<script>{LOOK}</script></body>")
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
        options += ["--allow-file-access-from-files", "--virtual-time-budget=5000", "--dump-dom"]
        options += ["--blink-settings=preferredColorScheme=0"] if dark else []
        done = subprocess.run(
            [BROWSER, *options, f"--user-data-dir={tmp_path}/user", tmp_path / "frame.html"],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        assert "CONSOLE" not in done.stderr, done.stderr
        return json.loads(html.unescape(re.search("<body>(.*)</body>", done.stdout, re.DOTALL)[1]))

    return opened


def test_it_has_every_claim_and_every_row_of_every_table(results, text):
    assert text.count('<li class="claim item"') == sum(
        len(paper.claims) for paper in results.papers
    )
    rows = [
        row
        for paper in results.papers
        for artifact in paper.artifacts
        if artifact.about.kind == "table" and artifact.files
        for row in artifact.table.shown_rows
    ]
    assert text.count('<tr class="row item"') == len(rows)
    counted = count_papers(results.papers)["empirical"]
    assert f"Of {sum(counted.values())} effects {counted['held']} came out as claimed" in text


def test_it_needs_no_other_file_and_every_link_inside_leads_somewhere(text):
    sources = {source.partition(",")[0] for source in re.findall(r'\bsrc="([^"]*)"', text)}
    assert sources == {"data:image/svg+xml;base64"}
    assert not re.search(r"<link|@import|url\(", text)
    places = re.findall(r'\bid="([^"]+)"', text)
    assert len(places) == len(set(places))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(places)


HOSTILE = """<script>alert(1)</script> ![x](https://e/x.png) ![x](javascript:1) [x](javascript:1)
  <javascript:1> ![x][picture] [x][run] [x](https://e/)

  [picture]: https://e/x.png
  [run]: javascript:1
"""


def test_what_is_written_of_a_paper_runs_nothing_and_loads_nothing(results):
    findings = f"## shift: its errors\n\n- {HOSTILE}"
    said = results.report.model_copy(update={"findings": findings})
    text = as_html(replace(results, report=said))
    (told,) = re.findall(r'<li class="item" id="finding-shift-1">(.*?)</li>', text, re.DOTALL)
    assert "&lt;script&gt;alert(1)" in told
    assert set(re.findall("<([a-z]+)", told)) == {"p", "a"}
    assert {*re.findall(r'\b(?:href|src)="(\w+):', told)} == {"https"}


def test_each_number_can_be_asked_for_its_origin(results, text):
    numbers = json.loads(re.search(r'id="numbers">(.*?)</script>', text, re.DOTALL)[1])
    asked = [tuple(place.split()) for place in re.findall(r'data-number="([^"]+)"', text)]
    assert asked == [
        (target, str(index)) for target, told in numbers.items() for index in range(len(told))
    ]
    assert all(len(told) == 7 for cells in numbers.values() for told in cells)


@WITH_BROWSER
@pytest.mark.parametrize(("width", "dark"), [(390, False), (1280, True), (1440, False)])
def test_nothing_is_wider_than_the_window_and_no_anchor_lies_under_a_bar(look, width, dark):
    seen = look(width, dark=dark, anchor="#octic_table2")
    assert seen["overflow"] == 0
    assert seen["bar"] <= seen["target"] < 200
    assert "make again" in seen["origin"]


@WITH_BROWSER
def test_filters_in_the_address_leave_exactly_their_rows(look, results):
    everything = look()
    statuses = Counter(claim["status"] for paper in results.papers for claim in paper.claims)
    assert Counter(everything["claims"]) == statuses
    contrary = look(status="contrary")
    assert contrary["claims"] == ["contrary"] * statuses["contrary"]
    assert contrary["rows"] == []
    assert set(contrary["others"]) == {"contrary"}
    exact = look(verdict="exact")
    assert exact["claims"] == []
    assert exact["rows"] == [
        verdicts for verdicts in everything["rows"] if "exact" in verdicts.split()
    ]
    found = look(q="A-CvT")
    assert found["texts"]
    assert {*found["texts"]} <= {*everything["texts"]}
    for seen in (contrary, exact, found):
        assert seen["empty"] == []
        assert not seen["none"]
        assert (
            seen["said"] == f"{len(seen['claims'])} claims and {len(seen['rows'])} table rows shown"
        )
    nothing = look(q="no such words")
    assert nothing["none"]
    assert nothing["claims"] == nothing["rows"] == nothing["others"] == nothing["empty"] == []


@WITH_BROWSER
def test_a_link_to_a_claim_shows_it_whatever_is_filtered(look, results):
    paper = results.papers[0]
    held = next(claim["id"] for claim in paper.claims if claim["status"] == "held")
    seen = look(status="contrary", anchor=f"#claim-{paper.about.name}/{held}")
    assert 0 <= seen["target"] < 900
    assert "held" in seen["claims"]
