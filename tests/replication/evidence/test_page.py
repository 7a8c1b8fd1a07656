"""The report as a page: it says what the CSVs say, needs no network, and its filters work."""

import html
import json
import re
import shutil
import subprocess
from urllib.parse import urlencode

import pytest

from replication.evidence.claims import STATUSES
from replication.evidence.page import as_html
from replication.evidence.report import results_of
from replication.plan.catalog import load_catalog
from tests.conftest import ROOT

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
WITH_BROWSER = pytest.mark.skipif(BROWSER is None, reason="needs chromium or google-chrome")
LOOK = """
addEventListener("load", () => {
  const page = document.querySelector("iframe").contentDocument;
  const seen = [...page.querySelectorAll("tr.claim, tr.row")].filter(row => !row.hidden);
  document.body.textContent = JSON.stringify({
    claims: seen.filter(row => row.className == "claim").map(row => row.dataset.status),
    rows: seen.filter(row => row.className == "row").map(row => row.dataset.verdicts),
    texts: seen.map(row => row.textContent),
    said: page.getElementById("shown").textContent,
    overflow: page.documentElement.scrollWidth - page.documentElement.clientWidth,
  });
});
"""


@pytest.fixture(scope="module")
def results():
    catalog = load_catalog(ROOT, scale="laptop")
    nodes = map(catalog.rendering_node, catalog.artifacts)
    return results_of(catalog.report_node, nodes, ROOT / "results" / "published" / "laptop")


@pytest.fixture(scope="module")
def text(results):
    return as_html(results)


@pytest.fixture
def look(tmp_path, text):
    """Open the page in a browser at a width, with filters in its address; say what is seen."""

    def opened(width=1280, **filters):
        (tmp_path / "report.html").write_text(text)
        address = "report.html" + ("#" + urlencode(filters, doseq=True) if filters else "")
        frame = f'<iframe src="{address}" width="{width}" height="900"></iframe>'
        (tmp_path / "frame.html").write_text(f"<body>{frame}<script>{LOOK}</script></body>")
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
        options += ["--allow-file-access-from-files", "--virtual-time-budget=5000", "--dump-dom"]
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
    assert text.count('<tr class="claim"') == sum(len(paper.claims) for paper in results.papers)
    rows = [
        row
        for paper in results.papers
        for artifact in paper.artifacts
        if artifact.node.shape == "table" and artifact.files
        for row in artifact.node.rows
    ]
    assert text.count('<tr class="row"') == len(rows)
    for paper in results.papers:
        counted = paper.statuses["empirical"]
        said = " ".join(f"{counted[status]} {status}" for status in STATUSES)
        assert not counted or f'aria-label="empirical claims: {said}' in text


def test_it_needs_no_other_file_and_every_link_inside_leads_somewhere(text):
    sources = {source.partition(",")[0] for source in re.findall(r'\bsrc="([^"]*)"', text)}
    assert sources == {"data:image/svg+xml;base64"}
    assert not re.search(r"<link|@import|url\(", text)
    places = re.findall(r'\bid="([^"]+)"', text)
    assert len(places) == len(set(places))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(places)


@WITH_BROWSER
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_window(look, width):
    seen = look(width)
    assert seen["overflow"] == 0
    assert seen["said"] == f"{len(seen['claims'])} claims and {len(seen['rows'])} table rows shown"


@WITH_BROWSER
def test_filters_in_the_address_leave_exactly_their_rows(look, results):
    everything = look()
    statuses = [claim["status"] for paper in results.papers for claim in paper.claims]
    assert everything["claims"] == statuses
    contrary = look(status=["contrary"])
    assert contrary["claims"] == [status for status in statuses if status == "contrary"]
    assert contrary["rows"] == everything["rows"]
    exact = look(verdict="exact", status=STATUSES)
    assert exact["claims"] == []
    assert exact["rows"] == [
        classes for classes in everything["rows"] if "exact" in classes.split()
    ]
    found = look(q="A-CvT", status=STATUSES)
    assert found["texts"] == [
        row_text for row_text in everything["texts"] if "a-cvt" in row_text.lower()
    ]
    assert found["texts"]
