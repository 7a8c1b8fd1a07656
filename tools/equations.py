"""The equation index: the code and tests of each numbered equation, claim and section of a paper.

A docstring cites a paper by its name and a list of items: "shift, Sec. 4, Eq. 13-14". A section
without a number is cited by its title, in quotes. The items that a paper numbers are listed in
``configs/papers/<paper>/reference/equations.csv``. If nothing computes an item, its `note` says
why. A test fails if an item has neither code and tests nor a note.
"""

from __future__ import annotations

import ast
import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from replication.config.paper import PaperInfo
from replication.plan.catalog import Catalog
from replication.report.tables import markdown_escape, pipe_table

SOURCES, TESTS = Path("src"), Path("tests")
FOLDER = Path("docs") / "equations"
NUMBER = r"(?=[A-Z\d])[A-Z]?\d*(?:\.\d+)*"
ITEM = (
    r"(?:Eq\.|Sec\.|App\.|Claim|Lemma|Theorem|Proposition|Example) "
    rf'(?:"[^"]+"|{NUMBER}(?:-{NUMBER})?)'
)
ABOUT = """\
Where each numbered equation, claim and section of the paper is computed, and which tests prove it.
Introduction, related work and conclusion are left out. The page is made from the docstrings that
cite the paper, such as "{name}, {first}"."""


@dataclass(frozen=True)
class Item:
    """An equation, claim or section of a paper: its name, its section, and what it says."""

    name: str
    section: str
    statement: str
    note: str = ""


@dataclass(frozen=True, order=True)
class Place:
    """A module, class or function of a file."""

    file: Path
    symbol: str = ""

    @property
    def is_test(self) -> bool:
        """Whether the file is one of tests/."""
        return self.file.is_relative_to(TESTS)

    @property
    def link(self) -> str:
        """The Markdown link from a paper's page: its text is a test's sentence, or a name of code.

        The fragment of the link is the symbol, which the site resolves (docs/conf.py). A line
        number would be wrong after the next edit.
        """
        if self.is_test:
            text = self.symbol.removeprefix("test_").replace("_", " ")
        else:
            module = ".".join(self.file.relative_to(SOURCES).with_suffix("").parts)
            module = module.removeprefix("vitrail.")
            text = f"`{'.'.join(filter(None, [module.removesuffix('.__init__'), self.symbol]))}`"
        fragment = f"#{self.symbol}" if self.symbol else ""
        return f"[{text}](../../{self.file.as_posix()}{fragment})"


def pages(catalog: Catalog, root: Path = Path()) -> dict[Path, str]:
    """Return the page of each paper that has a list of its items, by the page's path."""
    found = citations(root, catalog.papers)
    return {
        FOLDER / f"{name}.md": page(name, paper.info, items, found)
        for name, paper in catalog.papers.items()
        if (items := items_of(paper.folder))
    }


def items_of(folder: Path) -> list[Item]:
    """Read the items of a paper from its folder in configs/; an empty list without the file."""
    path = folder / "reference" / "equations.csv"
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [Item(**row) for row in csv.DictReader(file)]


def names(item: str) -> list[str]:
    """Write out a range of numbers: "Claim 1-2" is "Claim 1" and "Claim 2"."""
    found = re.fullmatch(r"(.+ [A-Z]?)(\d+)-[A-Z]?(\d+)", item)
    if found is None:
        return [item]
    kind, first, last = found.groups()
    return [f"{kind}{number}" for number in range(int(first), int(last) + 1)]


def citation(papers: Iterable[str]) -> re.Pattern[str]:
    """Return the pattern of a citation, a paper and a list of items, in a text of one line."""
    return re.compile(rf"\b({'|'.join(papers)}), ({ITEM}(?:(?:, | and ){ITEM})*)")


def cited(text: str, papers: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each paper and item that a docstring cites."""
    for paper, items in citation(papers).findall(" ".join(text.split())):
        for item in re.findall(ITEM, items):
            yield from ((paper, name) for name in names(item))


def docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each symbol of a file that has a docstring ("" for the module), and the docstring."""
    waiting: list[tuple[str, ast.AST]] = [("", ast.parse(path.read_text(encoding="utf-8")))]
    while waiting:
        symbol, node = waiting.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            if text := ast.get_docstring(node):
                yield symbol, text
            waiting += [
                (".".join(filter(None, [symbol, getattr(child, "name", "")])), child)
                for child in node.body
            ]


def citations(root: Path, papers: Iterable[str]) -> Mapping[tuple[str, str], set[Place]]:
    """Return the places that cite each item: code, and tests without their helpers."""
    found: dict[tuple[str, str], set[Place]] = defaultdict(set)
    for folder in (SOURCES, TESTS):
        for path in sorted((root / folder).rglob("*.py")):
            for symbol, text in docstrings(path):
                if folder == SOURCES or symbol.startswith("test_"):
                    place = Place(path.relative_to(root), symbol)
                    for item in cited(text, papers):
                        found[item].add(place)
    return found


def page(
    name: str, info: PaperInfo, items: Sequence[Item], found: Mapping[tuple[str, str], set[Place]]
) -> str:
    """Return a paper's page as Markdown."""
    rows = []
    for item in items:
        places = sorted(
            {p for cited_as in names(item.name) for p in found.get((name, cited_as), ())}
        )
        code, tests = ([p.link for p in places if p.is_test is kind] for kind in (False, True))
        number = f"{item.name}<br>({item.section})" if item.section else item.name
        statement = markdown_escape(item.statement)
        if item.note:
            statement += f" *{markdown_escape(item.note)}*"
        rows.append([number, statement, "<br>".join(code), "<br>".join(tests)])
    parts = [
        f"# {name}: equations, claims and sections",
        f"[{markdown_escape(info.title)}]({info.url}), {info.authors}, {info.venue}.",
        ABOUT.format(name=name, first=items[0].name),
        pipe_table(["in the paper", "what it says", "code", "tests"], rows, numbers=False),
    ]
    return "\n\n".join(parts) + "\n"
