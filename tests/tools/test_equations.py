"""Every equation, claim and section of the papers leads to code and a test, or says why not."""

import re
import runpy
from types import SimpleNamespace

import pytest

from tests.conftest import ROOT, catalog_of
from tools.docs import documented
from tools.equations import (
    SOURCES,
    citation,
    citations,
    cited,
    docstrings,
    items_of,
    names,
    pages,
)

CATALOG = catalog_of("laptop")
ITEMS = {name: items_of(paper.folder) for name, paper in CATALOG.papers.items()}
PAPERS = [name for name in ITEMS if ITEMS[name]]
FOUND = citations(ROOT, PAPERS)
PAGES = pages(documented(ROOT), ROOT)
# The last equation of each paper's main text and of its appendix, if that counts anew.
LAST = {"shift": (26, (27, 68)), "octic": (17,), "position": (13,), "variance": (6,)}


@pytest.mark.parametrize(
    ("paper", "item"),
    [
        pytest.param(name, item, id=f"{name}, {item.name}")
        for name in PAPERS
        for item in ITEMS[name]
    ],
)
def test_an_item_has_code_and_a_test_or_says_why_not(paper, item):
    places = [place for name in names(item.name) for place in FOUND.get((paper, name), ())]
    kinds = {place.is_test for place in places}
    assert kinds == {True, False} or item.note, f"{paper}, {item.name}: cite it in a docstring"


@pytest.mark.parametrize("paper", LAST)
def test_no_equation_is_left_out(paper):
    listed = [name for item in ITEMS[paper] for name in names(item.name) if name[:3] == "Eq."]
    main, *appendix = LAST[paper]
    expected = [f"Eq. {number}" for number in range(1, main + 1)]
    expected += [f"Eq. A{number}" for first, last in appendix for number in range(first, last + 1)]
    assert sorted(listed) == sorted(expected)


def test_only_what_there_is_is_cited():
    known = {(paper, name) for paper in PAPERS for i in ITEMS[paper] for name in names(i.name)}
    assert {name: FOUND[name] for name in FOUND if name not in known} == {}


def test_an_equation_is_cited_with_its_paper():
    """The first of a docstring names it; another paper's is called "equation (2)"."""
    for path in sorted((ROOT / SOURCES).rglob("*.py")):
        for symbol, text in docstrings(path):
            before = citation(PAPERS).split(" ".join(text.split()), maxsplit=1)[0]
            assert not re.search(r"\bEqs?\. ", before), f"{path}: {symbol}"


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_what_docstrings_cite(path):
    assert (ROOT / path).read_text() == PAGES[path], "run python -m tools.docs"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("C-Cons (shift, Sec. 5.1, Eq. 25): do", ["Sec. 5.1", "Eq. 25"]),
        ("Source: shift,\n    Eq. A33-A35.", ["Eq. A33", "Eq. A34", "Eq. A35"]),
        ("(shift, App. A.1 and Example 3.2)", ["App. A.1", "Example 3.2"]),
        ('(shift, Sec. "Due to Mixup", Claim 1)', ['Sec. "Due to Mixup"', "Claim 1"]),
        ("(Sec. 5.1, Eq. 25) (CvT, Eq. 2)", []),
    ],
)
def test_a_citation_is_a_paper_and_a_list_of_items(text, expected):
    assert [*cited(text, ["shift"])] == [("shift", item) for item in expected]


def test_helpers_of_tests_prove_nothing(tmp_path):
    for path, name in (("src/vitrail/a.py", "f"), ("tests/test_a.py", "test_f")):
        (tmp_path / path).parent.mkdir(parents=True)
        other = f'def _{name}():\n    """shift, Eq. 2."""\n'
        (tmp_path / path).write_text(f'{other}def {name}():\n    """shift, Eq. 1."""\n')
    found = citations(tmp_path, ["shift"])
    assert {place.symbol for place in found["shift", "Eq. 1"]} == {"f", "test_f"}
    assert {place.symbol for place in found["shift", "Eq. 2"]} == {"_f"}


@pytest.mark.parametrize("path", PAGES)
def test_on_the_site_a_link_leads_to_the_line_of_what_it_names(path):
    conf = runpy.run_path(str(ROOT / "docs" / "conf.py"))
    text = [(ROOT / path).read_text()]
    named = [found.groups() for found in conf["LISTED"].finditer(text[0])]
    app = SimpleNamespace(listed_code=set())
    conf["link_to_lines"](app, str(path.with_suffix("")), text)
    led = re.findall(r"\]\(code:([\w/]+\.py)#L-(\d+)\)", text[0])
    assert "../../src" not in text[0]
    assert len(led) == len(named) > 20
    assert app.listed_code == {file for file, _ in led}
    for (file, symbol), (same, line) in zip(named, led, strict=True):
        begins = (ROOT / same).read_text().splitlines()[int(line) - 1]
        assert file == same
        assert not symbol or re.match(rf"\s*(def|class) {symbol.split('.')[-1]}\b", begins)
