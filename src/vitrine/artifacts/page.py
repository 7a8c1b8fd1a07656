"""The report of a scale as one HTML page that needs no network: ``report.html``.

What it shows is gathered here as plain data; the page itself is the template ``report.html.j2``
beside this file. Pictures are inlined as data URIs, so that the page can be sent as a file.
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

from vitrine.artifacts.claims import STATUSES
from vitrine.artifacts.report import VERDICTS, Results, circumstances, count_evidence
from vitrine.artifacts.tables import origin, rows_of, short_commit

if TYPE_CHECKING:
    from vitrine.plan.catalog import Artifact, Paper

ICONS = {"held": "✓", "contrary": "✗", "undecided": "?", "not run": "–"}
BANNER = (
    "These numbers come from small models on stand-ins: small datasets that replace the papers' "
    "data. What holds here shows that a method does what its paper says, and no more."
)


def page(results: Results) -> str:
    """Return the report of a scale as HTML.

    Raises:
        VitrineError: the provenance of a run or a measurement is damaged.
    """
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    catalog = results.catalog
    cells = [cells for group in results.tables.values() for cells in group.values()]
    papers = [_paper(paper, results) for paper in catalog.papers.values()]
    claims = [one for paper in papers for one in paper["claims"]]
    stands_in = any((one["verdict"] == "not_comparable").any() for one in cells)
    return environment.get_template("report.html.j2").render(
        scale=catalog.scale.name,
        description=catalog.scale.description,
        banner=BANNER if stands_in else "",
        circumstances=circumstances(cells, catalog),
        papers=papers,
        contrary=[one for one in claims if one["status"] == "contrary"],
        statuses=STATUSES,
        verdicts=VERDICTS,
        icons=ICONS,
    )


def _paper(paper: Paper, results: Results) -> dict[str, Any]:
    claims = results.claims[paper.name]
    artifacts = [
        _artifact(one, results.tables[paper.name][one.name], results)
        for one in paper.artifacts.values()
    ]
    pictures = [one["picture"] for one in artifacts if one["picture"]]
    deviations = paper.folder / "deviations.md"
    text = deviations.read_text(encoding="utf-8") if deviations.is_file() else ""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)  # where a quoted number comes from
    return {
        "name": paper.name,
        "info": paper.info,
        "counts": count_evidence(claims) if len(claims) else Counter(),
        "claims": [_claim(one, paper.name) for one in claims.to_dict("records")],
        "artifacts": artifacts,
        "picture": next(iter(pictures), ""),
        "deviations": MarkdownIt("commonmark", {"html": False}).enable("table").render(text),
    }


def _claim(claim: Mapping[Any, Any], paper: str) -> dict[str, Any]:
    wanted = ("status", "stand_in", "statement", "source", "detail")
    return {**{name: claim[name] for name in wanted}, "id": f"{paper}/{claim['id']}"}


def _artifact(artifact: Artifact, cells: pd.DataFrame, results: Results) -> dict[str, Any]:
    kinds = (".csv", ".tex") if artifact.kind == "table" else (".csv",)
    files = {suffix: results.file(artifact, suffix) for suffix in kinds}
    svg = results.file(artifact, ".svg")
    built = files[".csv"].is_file()
    return {
        "target": f"{artifact.paper}_{artifact.name}",
        "about": artifact,
        "built": built,
        "origin": origin(cells) if built else "",
        "verdicts": Counter(cells["verdict"]),
        "groups": _groups(artifact),
        "rows": _rows(artifact, cells) if built and artifact.kind == "table" else [],
        "picture": _data_uri(svg) if svg.is_file() else "",
        "texts": {
            suffix[1:]: file.read_text(encoding="utf-8") for suffix, file in files.items() if built
        },
    }


def _groups(artifact: Artifact) -> list[tuple[str, int]]:
    """The groups of a table's columns with how many columns each has; none without groups."""
    groups: list[tuple[str, int]] = []
    for column in artifact.columns:
        name = column.group or ""
        if groups and groups[-1][0] == name:
            groups[-1] = name, groups[-1][1] + 1
        else:
            groups.append((name, 1))
    return groups if any(name for name, _ in groups) else []


def _rows(artifact: Artifact, cells: pd.DataFrame) -> list[dict[str, Any]]:
    """A table's rows: for each column what was measured, what is printed, verdict and origin."""
    cells = cells.assign(paper_value=[_as_printed(value) for value in cells["paper_value"]])
    found = {(one["row"], one["column"]): one for one in cells.to_dict("records")}
    rows = []
    for row in rows_of(artifact, cells):
        each = itertools.zip_longest(artifact.columns, row.measured, row.printed, fillvalue=None)
        numbers = [
            _number(
                here.text, there.text if there else "", found.get((row.label, column.full_label))
            )
            for column, here, there in each
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
    if cell is None:
        return {"text": text, "printed": printed, "verdict": "", "origin": ""}
    told = [f"{cell['n_seeds']} seeds" if cell["n_seeds"] > 1 else ""]
    if not pd.isna(cell["ci_low"]):
        told.append(f"95 % interval {cell['ci_low']:.4g} to {cell['ci_high']:.4g}")
    told += [f"{name} {cell[name]}" for name in ("dataset", "device") if cell[name]]
    told += [f"recipe {cell['recipe_hash']}" if cell["recipe_hash"] else ""]
    told += [f"commit {short_commit(cell['commit'])}" if cell["commit"] else ""]
    told += [VERDICTS[cell["verdict"]]]
    return {
        "text": text,
        "printed": printed,
        "verdict": cell["verdict"],
        "origin": " · ".join(filter(None, told)),
    }


def _data_uri(path: Path) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode()
