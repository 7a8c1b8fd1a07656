"""One page for a scale: every artifact with its verdicts, which claims hold, and what it cost."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from replication.evidence.claims import STATUSES, evaluate
from replication.evidence.comparison import COLUMNS, read_cells
from replication.evidence.tables import markdown_escape, pipe_table, short_commit
from replication.ledger import Record, read_record
from replication.plan.nodes import RenderingNode, ReportNode, TrainingNode
from vitrail.provenance import duration

if TYPE_CHECKING:
    from replication.plan.catalog import Artifact

VERDICTS = {
    "exact": "exact",
    "within": "within",
    "outside": "outside",
    "not_comparable": "not comparable",
    "not_run": "not run",
    "unprinted": "not in the paper",
}
LEGEND = """\
A cell is judged only where recipe and arguments are the paper's own. **exact**: a deterministic
fact, equal in every printed digit. **within** / **outside**: the difference from the printed
number is / is not explained by the spread over seeds (95 %) and rounding. **not comparable**: a
stand-in (dataset, model size, schedule, hardware), or the paper prints a word; such a number
neither confirms nor contradicts the paper. **not in the paper**: our own extension, or a plot
without printed numbers. Claims are relations between our own numbers, judged wherever these are
measured: **held** or **contrary** where the difference is larger than its 95 % interval,
**undecided** where it is not. The interval covers the spread over seeds and, where both numbers
judge the same images, that over images, both paired. Images are taken as independent, which those
composed of one scan or photograph are not. Several claims on the same numbers count once."""


@dataclass
class Cost:
    """What runs and measurements took: seconds of one device, by its name; jobs that do not say."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    jobs: int = 0
    silent: int = 0


Artifacts = Mapping[str, Mapping[str, RenderingNode]]
"""The artifacts of each paper, by name."""


@dataclass(frozen=True)
class Results:
    """What a scale's report is made of: tidy cells and judged claims of each paper, in a folder."""

    node: ReportNode
    folder: Path
    artifacts: Artifacts
    tables: Mapping[str, Mapping[str, pd.DataFrame]]
    claims: Mapping[str, pd.DataFrame]
    record: Callable[[Path], Record | None]

    def file(self, artifact: RenderingNode, suffix: str) -> Path:
        """One of an artifact's files, which exists if it is built."""
        return self.folder / artifact.paper / f"{artifact.name}{suffix}"


def results_of(
    node: ReportNode,
    renderings: Iterable[RenderingNode],
    folder: Path | None = None,
    record: Callable[[Path], Record | None] = read_record,
) -> Results:
    """Read the cells of artifacts from a results folder, by default the report's own.

    `record` gives the records that tell what the artifacts cost, by their paths.

    Raises:
        VitrailError: a file of results is damaged.
    """
    folder = folder or node.output.parent
    artifacts: dict[str, dict[str, RenderingNode]] = {paper.name: {} for paper in node.papers}
    for artifact in renderings:
        artifacts[artifact.paper][artifact.name] = artifact
    tables = {
        paper: {name: cells_of(artifact, folder) for name, artifact in own.items()}
        for paper, own in artifacts.items()
    }
    claims = {
        paper.name: evaluate(paper.claims, tables[paper.name], artifacts[paper.name])
        for paper in node.papers
    }
    return Results(node, folder, artifacts, tables, claims, record)


def report(results: Results) -> str:
    """Return the report of a scale in Markdown; its links are relative to the results folder.

    Raises:
        VitrailError: the record of a training or a measurement is damaged.
    """
    node, claims = results.node, results.claims
    parts = [
        f"# Results at scale {node.scale}",
        node.description,
        LEGEND,
        _overview(results),
        "## What it was measured on",
        "\n".join(f"- {name}: {value}" for name, value in circumstances(results).items()),
    ]
    for paper in node.papers:
        parts.append(f"## {paper.name}")
        title = markdown_escape(paper.title)
        parts.append(f"[{title}]({paper.url}), {paper.authors}, {paper.venue}.")
        parts += [_claims_table(claims[paper.name])] if len(claims[paper.name]) else []
        parts += [_entry(artifact, results) for artifact in results.artifacts[paper.name].values()]
    return "\n\n".join(parts) + "\n"


def cost_of(results: Results) -> Cost:
    """Add up the device time that finished trainings and measurements give in their records.

    Raises:
        VitrailError: a record is damaged.
    """
    artifacts = [one for own in results.artifacts.values() for one in own.values()]
    measured = dict.fromkeys(path for one in artifacts for path in one.measurements)
    cost = Cost()
    for path in (*results.node.trainings, *measured):
        if (record := results.record(path)) is None:
            continue
        training = isinstance(record.node, TrainingNode)
        outcome = record.outcome
        for facts in outcome["facts"].values() if training else [outcome["provenance"]]:
            cost.jobs += 1
            if "wall_seconds" in facts:  # each process of a job had a device of its own
                cost.seconds[facts["device"]] += facts["wall_seconds"] * facts.get("processes", 1)
            else:
                cost.silent += 1
    return cost


def cells_of(artifact: RenderingNode | Artifact, folder: Path) -> pd.DataFrame:
    """The tidy cells of an artifact in a results folder; none where it is not built."""
    path = folder / artifact.paper / f"{artifact.name}.csv"
    return read_cells(path) if path.is_file() else pd.DataFrame(columns=COLUMNS)


def _overview(results: Results) -> str:
    """A line for each paper: its cells by verdict, its claims by status."""
    head = ["paper", *VERDICTS.values(), *(f"claims {status}" for status in STATUSES)]
    rows = []
    for name, group in results.tables.items():
        verdicts = Counter(verdict for cells in group.values() for verdict in cells["verdict"])
        statuses = count_evidence(results.claims[name])
        counts = [verdicts[verdict] for verdict in VERDICTS] + [statuses[one] for one in STATUSES]
        rows.append([f"[{name}](#{name})", *map(str, counts)])
    return pipe_table(head, rows)


def count_evidence(claims: pd.DataFrame) -> Counter[str]:
    """Count claims by status, those on the same numbers once."""
    judged = claims["evidence"].notna()
    return Counter(
        [*claims[judged].drop_duplicates("evidence")["status"], *claims[~judged]["status"]]
    )


def circumstances(results: Results) -> dict[str, str]:
    """Devices, datasets, commits, seeds and compute, by what they are.

    Raises:
        VitrailError: the record of a training or a measurement is damaged.
    """
    tables = [cells for group in results.tables.values() for cells in group.values()]
    if not tables:
        return {}
    cost = cost_of(results)
    run = pd.concat([cells[cells["n_seeds"] > 0] for cells in tables])
    silent = f", of which {cost.silent} did not note their time" if cost.silent else ""
    each = {name: [*filter(None, run[name].unique())] for name in ("device", "dataset", "commit")}
    facts = {
        **each,
        "commit": [short_commit(commit) for commit in each["commit"]],
        "seeds of a cell": [str(count) for count in sorted(run["n_seeds"].unique())],
        "compute": [f"{duration(took)} on {device}" for device, took in cost.seconds.items()],
        "jobs (runs and measurements)": [f"{cost.jobs}{silent}"],
    }
    return {name: ", ".join(found) for name, found in facts.items() if found}


def _claims_table(claims: pd.DataFrame) -> str:
    """What the paper states, and whether our numbers bear it out."""
    rows = []
    for claim in claims.to_dict("records"):
        where = " on a stand-in" if claim["stand_in"] else ""
        standing = f"**{claim['status']}**{where}"
        statement = markdown_escape(f"{claim['statement']} ({claim['source']})")
        not_run = claim["status"] == "not run"
        rows.append(
            ["not run" if not_run else standing, statement, markdown_escape(claim["detail"])]
        )
    return pipe_table(["claim", "the paper's statement", "measured here"], rows, numbers=False)


def _entry(artifact: RenderingNode, results: Results) -> str:
    """One artifact: caption, links, verdicts, and the picture of a figure."""
    parts = [
        f"### {artifact.name}: {markdown_escape(artifact.title)}",
        f"> {markdown_escape(artifact.caption)} ({artifact.source})",
    ]
    if not results.file(artifact, ".csv").is_file():
        return "\n\n".join([*parts, f"Not built: `snakemake {artifact.target}`"])
    parts += [markdown_escape(artifact.note)] if artifact.note else []
    stem = f"{artifact.paper}/{artifact.name}"
    links = " ".join(f"[{suffix[1:]}]({stem}{suffix})" for suffix in artifact.suffixes)
    verdicts = Counter(results.tables[artifact.paper][artifact.name]["verdict"])
    counts = [f"{verdicts[name]} {text}" for name, text in VERDICTS.items() if verdicts[name]]
    parts.append(" · ".join([links, *counts]))
    if artifact.shape == "figure":
        parts.append(f"![{markdown_escape(artifact.title)}]({stem}.svg)")
    return "\n\n".join(parts)
