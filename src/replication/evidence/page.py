"""The report of a scale as one HTML page that needs no network: ``report.html``.

What the template ``report.html.j2`` beside this file shows is gathered here as plain data. Pictures
are inlined as data URIs, so that the page can be sent as a file.
"""

from __future__ import annotations

import base64
import itertools
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt

from replication.evidence.claims import STATUSES
from replication.evidence.report import (
    VERDICTS,
    Results,
    circumstances,
    count_evidence,
    report,
    results_of,
)
from replication.evidence.tables import Number, origin, rows_of, short_commit
from replication.ledger import require_record
from replication.plan.nodes import RenderingNode
from vitrail.files import write_atomically

if TYPE_CHECKING:
    from replication.plan.nodes import ReportedPaper, ReportNode

ICONS = {"held": "✓", "contrary": "✗", "undecided": "?", "not run": "–"}
BANNER = (
    "These numbers come from small models on stand-ins: small datasets that replace the papers' "
    "data. What holds here shows that a method does what its paper says, and no more."
)


def write_report(node: ReportNode) -> None:
    """Write the report from the records of all artifacts; VitrailError where one is missing."""
    renderings = (require_record(path).node for path in node.renderings)
    results = results_of(node, (one for one in renderings if isinstance(one, RenderingNode)))
    for file, text in zip(node.files, (report(results), page(results)), strict=True):
        write_atomically(file, text)


def page(results: Results) -> str:
    """Return the report of a scale as HTML.

    Raises:
        VitrailError: the record of a training or a measurement is damaged.
    """
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    node = results.node
    cells = [cells for group in results.tables.values() for cells in group.values()]
    papers = [_paper(paper, results) for paper in node.papers]
    claims = [one for paper in papers for one in paper["claims"]]
    stands_in = any((one["verdict"] == "not_comparable").any() for one in cells)
    return environment.get_template("report.html.j2").render(
        scale=node.scale,
        description=node.description,
        banner=BANNER if stands_in else "",
        circumstances=circumstances(results),
        papers=papers,
        contrary=[one for one in claims if one["status"] == "contrary"],
        statuses=STATUSES,
        verdicts=VERDICTS,
        icons=ICONS,
    )


def _paper(paper: ReportedPaper, results: Results) -> dict[str, Any]:
    claims = results.claims[paper.name]
    artifacts = [
        _artifact(one, results.tables[paper.name][one.name], results)
        for one in results.artifacts[paper.name].values()
    ]
    text = re.sub(
        r"<!--.*?-->", "", paper.deviations, flags=re.DOTALL
    )  # where a quoted number comes from
    return {
        "name": paper.name,
        "info": paper,
        "counts": count_evidence(claims) if len(claims) else Counter(),
        "claims": [{**one, "id": f"{paper.name}/{one['id']}"} for one in claims.to_dict("records")],
        "artifacts": artifacts,
        "picture": next(filter(None, (one["picture"] for one in artifacts)), ""),
        "deviations": MarkdownIt("commonmark", {"html": False}).enable("table").render(text),
    }


def _artifact(artifact: RenderingNode, cells: pd.DataFrame, results: Results) -> dict[str, Any]:
    kinds = (".csv", ".tex") if artifact.shape == "table" else (".csv",)
    files = {suffix[1:]: results.file(artifact, suffix) for suffix in kinds}
    svg = results.file(artifact, ".svg")
    picture = base64.b64encode(svg.read_bytes()).decode() if svg.is_file() else ""
    built = files["csv"].is_file()
    groups = itertools.groupby(column.group or "" for column in artifact.columns)
    spans = [(name, len(list(members))) for name, members in groups]
    return {
        "target": artifact.target,
        "about": artifact,
        "built": built,
        "origin": origin(cells) if built else "",
        "verdicts": Counter(cells["verdict"]),
        "groups": spans if any(name for name, _ in spans) else [],
        "rows": _rows(artifact, cells) if built and artifact.shape == "table" else [],
        "picture": picture and f"data:image/svg+xml;base64,{picture}",
        "texts": {kind: file.read_text("utf-8") for kind, file in files.items() if built},
    }


def _rows(artifact: RenderingNode, cells: pd.DataFrame) -> list[dict[str, Any]]:
    """A table's rows: for each column what was measured, what is printed, verdict and origin."""
    cells = cells.assign(paper_value=[_as_printed(value) for value in cells["paper_value"]])
    found = {(one["row"], one["column"]): one for one in cells.to_dict("records")}
    rows = []
    for row in rows_of(artifact, cells):
        printed = row.printed or (Number(),) * len(artifact.columns)
        numbers = [
            _number(here.text, there.text, found.get((row.label, column.full_label)))
            for column, here, there in zip(artifact.columns, row.measured, printed, strict=True)
        ]
        rows.append({"label": row.label, "numbers": numbers})
    return rows


def _as_printed(value: str) -> float | str:
    """A printed number or word as a CSV has it; NaN where the paper prints nothing."""
    try:
        return float(value or "nan")
    except ValueError:
        return value


def _number(text: str, printed: str, cell: Mapping[Any, Any] | None) -> dict[str, str]:
    shown = {"text": text, "printed": printed, "verdict": "", "origin": ""}
    if cell is None:
        return shown
    told = [f"{cell['n_seeds']} seeds"] if cell["n_seeds"] > 1 else []
    if not pd.isna(cell["ci_low"]):
        told.append(f"95 % interval {cell['ci_low']:.4g} to {cell['ci_high']:.4g}")
    facts = [
        *((name, cell[name]) for name in ("dataset", "device")),
        ("recipe", cell["recipe_hash"]),
        ("commit", short_commit(cell["commit"])),
    ]
    told += [f"{name} {fact}" for name, fact in facts if fact]
    told.append(VERDICTS[cell["verdict"]])
    return shown | {"verdict": cell["verdict"], "origin": " · ".join(told)}
