"""The report of a scale in Markdown, with links relative to the results folder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from replication.claims.comparison import VERDICTS
from replication.claims.decimals import decimals_by, format_number
from replication.claims.judge import STATUSES, unit_of_difference
from replication.config.claims import KINDS
from replication.report.results import count_papers
from replication.report.tables import markdown_escape, pipe_table
from vitrail.commands import count

if TYPE_CHECKING:
    from replication.report.results import ArtifactResults, PaperResults, Results

LEGEND = """\
**Numbers** are compared with the printed ones. *exact*: a count, a closed form or a setting of a
recipe, with every printed digit. *within*, *outside*: measured with the paper's own recipe and
data; the difference is, or is not, explained by the spread over seeds and rounding (*outside* is
also a setting that differs from the printed one). *not comparable*: another data set, model,
schedule or hardware than the paper's, so it neither confirms nor contradicts the paper.

**Claims** are relations between our own numbers. *held*, *contrary*: the whole 95 % interval lies
where the relation is true, or false. *undecided*: neither. *not tested*: the comparison would not
be fair. Kinds are counted apart. *empirical*: an effect of trained models or of the statistics of
images; it is decided only if its q-value, over the tested empirical claims of the paper, is below
5 %. *exact*: a count or closed form. *construction*: what holds for any weights. *timing*: a
measured time. *control*: what must come out if measures and verdicts are right. *confirmatory*:
registered before its models were trained; otherwise *exploratory*. After a statement stand its
source and its id, for `vitrail why ID`. Claims about the same numbers count once, with the worst of
their verdicts. docs/results.md of the repository explains each of these words."""


def as_markdown(results: Results) -> str:
    """Return the report of a scale in Markdown; its links are relative to the results folder."""
    parts = [
        f"# Results at scale {results.report.scale}",
        f"{results.report.description[0].upper()}{results.report.description[1:]}.",
        LEGEND,
        _overview(results),
        controls_of(results),
        _headlines(results),
        "![Every empirical effect with its interval, beside the printed one](effects.svg)",
        "## What it was measured on",
        "\n".join(f"- {name}: {value}" for name, value in results.circumstances.items()),
    ]
    for paper in results.papers:
        about = paper.about
        parts.append(f"## {about.name}")
        title = markdown_escape(about.title)
        linked = f"[{title}]({about.url})" if about.url else title
        parts.append(f"{linked}, {about.authors}, {about.venue}.")
        parts += [_claims_table(paper)] if paper.claims else []
        parts += map(_entry, paper.artifacts)
    return "\n\n".join(parts) + "\n"


def _overview(results: Results) -> str:
    """Return two tables by paper: claims by kind and status, and cells by verdict."""
    kinds = [kind for kind in KINDS if any(paper.statuses[kind] for paper in results.papers)]
    claims = [
        [f"[{paper.about.name}](#{paper.about.name})", kind]
        + [str(paper.statuses[kind][status]) for status in STATUSES]
        for kind in kinds
        for paper in results.papers
        if paper.statuses[kind]
    ]
    cells = [
        [paper.about.name, *(str(paper.verdicts[verdict]) for verdict in VERDICTS)]
        for paper in results.papers
    ]
    return "\n\n".join(
        [
            pipe_table(["paper", "claims", *STATUSES], claims),
            pipe_table(["paper's cells", *VERDICTS.values()], cells),
        ]
    )


def controls_of(results: Results) -> str:
    """Return how many controls came out as expected, in a sentence."""
    counted = count_papers(results.papers)["control"]
    total, held = sum(counted.values()) - counted["not run"], counted["held"]
    return f"Controls: {held} of {total} as expected."


def _headlines(results: Results) -> str:
    """Return the table of the papers' main statements; those not run are last in each paper."""
    rows = [
        [paper.about.name, *_headline(claim)]
        for paper in results.papers
        for claim in sorted(paper.claims, key=lambda claim: claim["status"] == "not run")
        if claim["headline"]
    ]
    heads = ["paper", "main statement (source)", "here", "effect", "printed", "seeds"]
    return pipe_table(heads, rows, numbers=False) if rows else "No main statement."


def _headline(claim: Mapping[str, Any]) -> list[str]:
    """Return the table cells of a main statement."""
    return [
        markdown_escape(f"{claim['statement']} ({claim['source']})"),
        standing_of(claim, f"**{claim['status']}**"),
        *tested_effect(claim),
    ]


def tested_effect(claim: Mapping[str, Any]) -> list[str]:
    """Return the texts of `effect_of`, the effect empty where the claim was not tested."""
    effect, *others = effect_of(claim)
    return ["" if claim["status"] == "not tested" else effect, *others]


def effect_of(claim: Mapping[str, Any]) -> list[str]:
    """Return as text a claim's effect with its interval, the printed effect, and the seeds."""
    if claim["status"] == "not run":
        return ["", "", ""]
    unit = unit_of_difference(claim["unit"])
    half, printed = claim["half_width"], claim["printed_effect"]
    decimals = None if math.isnan(half) else decimals_by(half)
    effect = signed(claim["left"] - claim["right"], decimals)
    if not math.isnan(half):
        effect += f" ± {format_number(half, decimals)}"
    told = "" if math.isnan(printed) else signed(float(f"{printed:.3g}")) + unit
    return [effect + unit, told, f"{claim['seeds']:.0f}"]


def standing_of(claim: Mapping[str, Any], verdict: str) -> str:
    """Return a claim's `verdict` with its kind, its registration, and what is not the paper's own.

    If the claim was not run or not tested, return `verdict` alone. A claim of kind construction
    holds for any weights, so its model and data are not told.
    """
    if claim["status"] in ("not run", "not tested"):
        return verdict
    stands_in = claim["stand_in"] and claim["kind"] != "construction"
    where = " on another model or other data" if stands_in else ""
    where = " on other hardware" if claim["of_hardware"] else where
    kind = ", ".join(filter(None, [claim["kind"], claim["registration"]]))
    return f"{verdict}{where} ({kind})"


def signed(value: float, decimals: int | None = None) -> str:
    """Return a number with its sign, also if it is positive."""
    return ("+" if value >= 0 else "") + format_number(value, decimals)


def _claims_table(paper: PaperResults) -> str:
    """Return the table of a paper's claims: status, statement and id, and what was measured.

    Claims that were not run are in a table of their own, which a reader can unfold.
    """
    judged, not_run = [], []
    for claim in paper.claims:
        statement = markdown_escape(f"{claim['statement']} ({claim['source']})")
        told = [f"{statement} `{claim['id']}`", markdown_escape(claim["detail"])]
        if claim["status"] == "not run":
            not_run.append(told)
        else:
            judged.append([standing_of(claim, f"**{claim['status']}**"), *told])
    heads = ["the paper's statement", "measured here"]
    parts = [pipe_table(["claim", *heads], judged, numbers=False)] if judged else []
    if not_run:
        summary = f"<summary>{count(len(not_run), 'claim')} not run</summary>"
        table = pipe_table(heads, not_run, numbers=False)
        parts.append(f"<details>{summary}\n\n{table}\n\n</details>")
    return "\n\n".join(parts)


def _entry(artifact: ArtifactResults) -> str:
    """Return an artifact's section: caption, links, verdicts, command, and a figure's picture."""
    about = artifact.about
    parts = [
        f"### {about.name}: {markdown_escape(about.title)}",
        f"> {markdown_escape(about.caption)} ({about.source})",
    ]
    if not artifact.files:
        return "\n\n".join([*parts, f"Not built: `{about.command}`"])
    parts += [markdown_escape(about.note)] if about.note else []
    stem = f"{about.paper}/{about.name}"
    links = " ".join(f"[{suffix[1:]}]({stem}{suffix})" for suffix in about.suffixes)
    verdicts = artifact.verdicts
    counts = [f"{verdicts[name]} {text}" for name, text in VERDICTS.items() if verdicts[name]]
    parts.append(" · ".join([links, *counts, f"made by `{about.command}`"]))
    if about.kind == "figure":
        parts.append(f"![{markdown_escape(about.title)}]({stem}.svg)")
    return "\n\n".join(parts)
