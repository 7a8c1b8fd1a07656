"""The report of a scale as files: ``report.html``, which needs no network, and the others.

The page shows what `replication.report.results` collected. Its template, style and script lie in
``web/`` beside this file. They, and the pictures as data URIs, are all written into the one HTML
file, so that it can be sent alone.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from replication.claims.comparison import VERDICTS
from replication.claims.effects import TICKS, bar, effects_of, percent, strip, strip_place
from replication.claims.judge import STATUSES
from replication.config.claims import KINDS
from replication.records.nodes import RenderingNode, report_files
from replication.records.records import require_record
from replication.report.forest import forest
from replication.report.formatting import datasets_read, spans
from replication.report.markdown_report import (
    LEGEND,
    as_markdown,
    controls_of,
    effect_of,
    tested_effect,
)
from replication.report.results import count_papers, results_of
from vitrail.errors import VitrailError
from vitrail.files import write_atomically
from vitrail.style import save

if TYPE_CHECKING:
    from replication.records.nodes import ReportNode
    from replication.records.specs import Artifact, Report
    from replication.report.formatting import Entry
    from replication.report.results import PaperResults, Results

WEB = Path(__file__).parent / "web"
ICONS = {"held": "✓", "contrary": "✗", "undecided": "?", "not tested": "·", "not run": "–"}
SIGNS = {
    "exact": ("=", "equal in every printed digit"),
    "within": ("=", "within what seeds and rounding explain"),
    "explained": ("≈", "equal by another reading"),
    "outside": ("≠", "differs"),
    "not_comparable": ("○", "not comparable: a stand-in, or other hardware"),
    "not_run": ("–", "not run"),
    "refused": ("", "not defined for the model"),
    "unprinted": ("", "not in the paper"),
}
KINDS_TOLD = {
    "empirical": ("Measured effects", "Differences between trained models, with 95 % intervals."),
    "exact": ("Exact facts", "FLOPs, parameters, constants, at the papers' own sizes. No data."),
    "construction": ("By construction", "True for any weights: the code does what the text says."),
    "timing": ("Timings", "On the machine that is named below, not the paper's."),
    "control": ("Controls", "Checks of our own, which must come out if the measures are sound."),
}
FOLDED = 26  # rows; a longer table is collapsed at first
SHOWN = 4  # claims shown beside an artifact; the others are collapsed at first


def write_report(node: ReportNode, said: Report) -> None:
    """Write a report from the records of all artifacts; `said` is what it shows besides them.

    Raises:
        VitrailError: the record of an artifact is missing, or claims or findings have changed since
            the report was planned.
    """
    if said.digest != node.report:
        raise VitrailError(
            f"configs/ or FINDINGS.md has changed since {node.path} was written; start snakemake "
            "again"
        )
    renderings = (require_record(path).node for path in node.renderings)
    artifacts = (made.artifact for made in renderings if isinstance(made, RenderingNode))
    results = results_of(said, artifacts, node.output.parent)
    _, html, *_ = write_summary(results, node.output)
    write_atomically(html, as_html(results))


def write_summary(results: Results, record: Path) -> tuple[Path, ...]:
    """Write the files of a report except the HTML page; return the paths of all of them."""
    files = report_files(record)
    page, _, claims, models, effects, _ = files
    save(forest(results.claims), effects.with_suffix(""))
    write_atomically(page, as_markdown(results))
    write_atomically(claims, results.claims.to_csv(index=False))
    write_atomically(models, results.models.to_csv(index=False))
    return files


def as_html(results: Results) -> str:
    """Return the report of a scale as one page of HTML."""
    environment = Environment(
        loader=FileSystemLoader(WEB),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "spans": spans,
        "inlined": _inlined,
        "rendered": _rendered,
        "effect": effect_of,
        "tested_effect": tested_effect,
        "heading": heading,
        "size": _size,
    }
    papers = results.papers
    effects: dict[str, list[dict[str, Any]]] = {paper.about.name: [] for paper in papers}
    for record in effects_of(results.claims).to_dict("records"):
        effect = {str(name): value for name, value in record.items()}
        effects[effect["paper"]].append({**effect, "bar": bar(effect)})
    counted = count_papers(papers)
    four = sum(map(_prints, papers)) == 4
    return environment.get_template("report.html.j2").render(
        node=results.report,
        title="Four Vision Transformer papers, rebuilt" if four else "Papers, rebuilt",
        style=Markup((WEB / "report.css").read_text(encoding="utf-8")),
        script=Markup((WEB / "report.js").read_text(encoding="utf-8")),
        numbers=Markup(json.dumps(_numbers_of(papers)).replace("<", "\\u003c")),
        circumstances=results.circumstances,
        legend=LEGEND,
        papers=papers,
        verdicts=sum((paper.verdicts for paper in papers), Counter()),
        headline={paper.about.name: _first_headline(paper) for paper in papers},
        findings=_findings(results.report.findings, [paper.about.name for paper in papers]),
        outside=[
            (artifact, row, artifact.about.columns[number], entry)
            for paper in papers
            for artifact in paper.artifacts
            for row in artifact.table.shown_rows
            for number, entry in enumerate(row.entries)
            if entry.verdict == "outside"
        ],
        contrary=[
            claim
            for kind in ("exact", "construction", "control", "timing", "empirical")
            for paper in papers
            for claim in _of_paper(paper)
            if claim["status"] == "contrary" and claim["kind"] == kind
        ],
        claims={paper.about.name: _by_artifact(paper) for paper in papers},
        effects=effects,
        strips={name: strip(own) for name, own in effects.items()},
        strip_edges=(strip_place(-1), strip_place(1)),
        ticks=[(points, percent(points)) for points in TICKS],
        counts={kind: counts for kind, counts in counted.items() if counts},
        controls=controls_of(results),
        kinds=KINDS,
        told=KINDS_TOLD,
        statuses=STATUSES,
        icons=ICONS,
        signs=SIGNS,
        verdict_names=VERDICTS,
        folded=FOLDED,
        shown=SHOWN,
    )


def heading(artifact: Artifact) -> str:
    """Return an artifact's heading: "Table 2: ..." for `table2`; the title alone if it is ours."""
    found = re.fullmatch(r"(table|fig)([A-Z]?\d+[a-z]?|[A-Z])", artifact.name)
    kind = {"table": "Table", "fig": "Figure"}[found[1]] if found else ""
    return f"{kind} {found[2]}: {artifact.title}" if found else artifact.title


def _of_paper(paper: PaperResults) -> list[dict[str, Any]]:
    """Return the claims of a paper, each with the paper's name; contrary ones come first."""
    claims = [{**claim, "paper": paper.about.name} for claim in paper.claims]
    return sorted(claims, key=lambda claim: claim["status"] != "contrary")


def _by_artifact(paper: PaperResults) -> dict[str, list[dict[str, Any]]]:
    """Return a paper's claims by artifact; "elsewhere" has those on artifacts not made here."""
    found: dict[str, list[dict[str, Any]]] = {each.about.name: [] for each in paper.artifacts}
    found["elsewhere"] = []
    for claim in _of_paper(paper):
        found.get(claim["artifact"], found["elsewhere"]).append(claim)
    return found


def _prints(paper: PaperResults) -> bool:
    """Tell whether the paper prints a number; a folder of our own artifacts prints none."""
    return any(row.prints for artifact in paper.artifacts for row in artifact.table.rows)


def _first_headline(paper: PaperResults) -> Mapping[str, Any] | None:
    """Return the first statement of the paper's abstract that was measured, None for none."""
    stated = (claim for claim in paper.claims if claim["headline"])
    return next((claim for claim in stated if claim["status"] != "not run"), None)


def _findings(text: str, papers: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the entries of FINDINGS.md by paper, as HTML by anchor.

    Those of a paper are in the section that begins with its name.
    """
    found = {}
    for paper in papers:
        section = re.search(rf"^## {paper}: .*?$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        entries = re.split(r"^- ", section[1], flags=re.MULTILINE)[1:] if section else []
        found[paper] = {
            f"finding-{paper}-{number}": _rendered(re.sub(r"\n  ", "\n", entry))
            for number, entry in enumerate(entries, start=1)
        }
    return found


def _numbers_of(papers: Iterable[PaperResults]) -> dict[str, list[list[Any]]]:
    """Return what the page shows on a click on a number, by table, in the order of cells."""
    return {
        artifact.about.target: [
            _told(entry, artifact.about, row.label, column)
            for row in artifact.table.shown_rows
            for entry, column in zip(row.entries, artifact.about.columns, strict=True)
            if entry.verdict
        ]
        for paper in papers
        for artifact in paper.artifacts
        if artifact.files and artifact.about.kind == "table"
    }


def _told(entry: Entry, artifact: Artifact, row: str, column: Any) -> list[Any]:
    """Return labels, both numbers, the verdict and the origin of a cell."""
    facts = dict(entry.facts)
    if "dataset" in facts:
        facts["dataset"] = ", ".join(datasets_read(facts["dataset"], artifact, "in place of"))
    numbers = entry.measured.text.rstrip("†‡≈"), entry.printed.text
    return [row, column.full_label, *numbers, entry.verdict, entry.same_as, facts]


def _inlined(picture: Path) -> str:
    """Return a picture in SVG as a data URI."""
    return f"data:image/svg+xml;base64,{base64.b64encode(picture.read_bytes()).decode()}"


def _size(picture: Path) -> Markup:
    """Return the HTML width and height of a picture in SVG, in pixels.

    With them, the browser reserves the picture's place before it is drawn.
    """
    text = picture.read_text(encoding="utf-8")
    points = re.findall(r'\b(?:width|height)="([\d.]+)pt"', text)[:2]
    return Markup('width="{:.0f}" height="{:.0f}"').format(*(float(n) * 4 / 3 for n in points))


def _rendered(text: str) -> str:
    """Return Markdown as HTML, without its comments, which tell where quoted numbers come from.

    Links to files of the checkout become plain text, since a page that is sent does not have them.
    An external picture becomes a link, since the page needs no network.
    """
    told = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    told = re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", told)
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    rendered: str = markdown.render(told)
    return rendered
