"""Collect the results of a scale, in one pass, for its report."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from replication.claims.comparison import COLUMNS, read_cells
from replication.claims.judge import COLUMNS as CLAIM_COLUMNS
from replication.claims.judge import STATUSES, WORST_FIRST, evaluate
from replication.config.claims import KINDS
from replication.records.nodes import TrainingNode
from replication.records.records import Record, read_record
from replication.report.formatting import Table, short_commit, table_of
from vitrail.provenance import duration

if TYPE_CHECKING:
    from replication.records.specs import Artifact, Report, ReportedPaper


MODELS = [
    *("paper", "recipe_hash", "searched", "once", "twice", "chance", "images", "rates", "floors"),
]


@dataclass(frozen=True)
class ArtifactResults:
    """A table or figure with its numbers, its count of cells by verdict, and its files by suffix.

    `files` is empty if it is not built.
    """

    about: Artifact
    table: Table
    verdicts: Counter[str]
    files: Mapping[str, Path]

    @property
    def picture(self) -> Path | None:
        """Return the drawing of a figure; None for a table, or if it is not built."""
        return self.files.get(".svg")


@dataclass(frozen=True)
class PaperResults:
    """A paper with its artifacts and its judged claims.

    `statuses` counts the claims by kind and status, as `count_evidence` does.
    """

    about: ReportedPaper
    artifacts: Sequence[ArtifactResults]
    claims: Sequence[Mapping[str, Any]]
    statuses: Mapping[str, Counter[str]]

    @property
    def verdicts(self) -> Counter[str]:
        """Return the number of its cells by verdict."""
        return sum((artifact.verdicts for artifact in self.artifacts), Counter())


@dataclass(frozen=True)
class Results:
    """All that the report of a scale shows; `circumstances` are devices, datasets and so on."""

    report: Report
    papers: Sequence[PaperResults]
    circumstances: Mapping[str, str]

    @property
    def claims(self) -> pd.DataFrame:
        """Return the judged claims of all papers, with the paper's name as first column."""
        rows = [
            {"paper": paper.about.name, **claim} for paper in self.papers for claim in paper.claims
        ]
        return pd.DataFrame(rows, columns=["paper", *CLAIM_COLUMNS])

    @property
    def models(self) -> pd.DataFrame:
        """Return the results of the searches on held-out images, in percent, by recipe.

        A recipe that no search covers has no row; a paper without searches has none at all.
        """
        rows = [
            {
                "paper": paper.about.name,
                "recipe_hash": digest,
                **result.model_dump(exclude={"rates", "baselines"}),
                "rates": " ".join(f"{rate:g}:{mean:.6g}" for rate, mean in result.rates.items()),
                "floors": " ".join(
                    f"{rule}:{score:.6g}" for rule, score in result.baselines.items()
                ),
            }
            for paper in self.papers
            for digest, result in (paper.about.tuning_results or {}).items()
        ]
        return pd.DataFrame(rows, columns=MODELS)


def results_of(
    report: Report,
    artifacts: Iterable[Artifact],
    folder: Path,
    record: Callable[[Path], Record | None] = read_record,
) -> Results:
    """Read the results of artifacts from a results folder.

    `record` returns the record at a path, None if there is none; records give the compute and the
    start of trainings.

    Raises:
        VitrailError: a file of results, or the record of a training or a measurement, is damaged.
    """
    known: dict[str, dict[str, Artifact]] = {paper.name: {} for paper in report.papers}
    for artifact in artifacts:
        known[artifact.paper][artifact.name] = artifact
    started = started_of(report.trainings, record)
    papers = []
    tables: list[pd.DataFrame] = []
    for paper in report.papers:
        own = known[paper.name]
        cells = {name: cells_of(artifact, folder) for name, artifact in own.items()}
        claims = evaluate(paper.claims, cells, own, paper.tuning_results, paper.registered, started)
        shown = [_artifact(own[name], cells[name], folder) for name in own]
        judged = [{str(name): claim[name] for name in claim} for claim in claims.to_dict("records")]
        papers.append(PaperResults(paper, shown, judged, count_evidence(claims)))
        tables += cells.values()
    measured = (
        path for own in known.values() for artifact in own.values() for path in artifact.records
    )
    made = filter(None, map(record, dict.fromkeys((*report.trainings, *measured))))
    return Results(report, papers, _circumstances(tables, [found.facts or {} for found in made]))


def cells_of(artifact: Artifact, folder: Path) -> pd.DataFrame:
    """Return the tidy cells of an artifact in a results folder; empty if it is not built."""
    path = folder / artifact.paper / f"{artifact.name}.csv"
    return read_cells(path) if path.is_file() else pd.DataFrame(columns=COLUMNS)


def count_evidence(claims: pd.DataFrame) -> dict[str, Counter[str]]:
    """Count the claims of each kind by status; of claims on the same numbers, only the worst."""
    return {kind: _count(claims[claims["kind"] == kind]) for kind in KINDS}


def _count(claims: pd.DataFrame) -> Counter[str]:
    judged = claims["evidence"].notna()
    ranked = claims[judged].sort_values(
        "status", key=lambda status: status.map(WORST_FIRST.index), kind="stable"
    )
    distinct = ranked.drop_duplicates("evidence")["status"]
    found = Counter([*distinct, *claims[~judged]["status"]])
    return Counter({status: found[status] for status in STATUSES if found[status]})


def count_papers(papers: Iterable[PaperResults]) -> dict[str, Counter[str]]:
    """Add up the counts of `count_evidence` over several papers."""
    papers = [*papers]
    return {kind: sum((paper.statuses[kind] for paper in papers), Counter()) for kind in KINDS}


def told_evidence(counts: Mapping[str, Counter[str]]) -> str:
    """Return the counts of `count_evidence` in words; "none" if there are no claims."""
    of_kinds = (
        f"{kind} {', '.join(f'{number} {status}' for status, number in statuses.items())}"
        for kind, statuses in counts.items()
        if statuses
    )
    return "; ".join(of_kinds) or "none"


def started_of(paths: Iterable[Path], record: Callable[[Path], Record | None]) -> dict[str, str]:
    """Return the start of each recipe's first training, by the recipe's hash; "" if unknown.

    Raises:
        VitrailError: a record is damaged.
    """
    started: dict[str, str] = {}
    for path in paths:
        if (found := record(path)) is None or not isinstance(found.node, TrainingNode):
            continue
        began, digest = str(found.outcome["facts"].get("started", "")), found.node.run.recipe.hash
        started[digest] = min(began, started.get(digest, began))
    return started


def _artifact(artifact: Artifact, cells: pd.DataFrame, folder: Path) -> ArtifactResults:
    files = artifact.files_in(folder / artifact.paper)
    built = {file.suffix: file for file in files if file.is_file()}
    return ArtifactResults(artifact, table_of(artifact, cells), Counter(cells["verdict"]), built)


def _circumstances(
    tables: Sequence[pd.DataFrame], made: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """Return devices, datasets, commits, seeds and compute as texts, each by its name.

    `made` are the facts of finished trainings and measurements.
    """
    if not tables:
        return {}
    run = pd.concat([cells[cells["n_seeds"] > 0] for cells in tables])
    timed = [facts for facts in made if "wall_seconds" in facts]
    seconds: dict[str, float] = defaultdict(float)
    for facts in timed:  # each process had a device of its own
        seconds[facts["device"]] += facts["wall_seconds"] * facts.get("processes", 1)
    untimed = len(made) - len(timed)
    silent = f", of which {untimed} did not note their time" if untimed else ""
    each = {name: [*filter(None, run[name].unique())] for name in ("device", "dataset", "commit")}
    facts = {
        **each,
        "commit": [short_commit(commit) for commit in each["commit"]],
        "seeds of a cell": [str(count) for count in sorted(run["n_seeds"].unique())],
        "compute, without searches": [
            f"{duration(took)} on {device}" for device, took in seconds.items()
        ],
        "runs and measurements": [f"{len(made)}{silent}"],
    }
    return {name: ", ".join(found) for name, found in facts.items() if found}
