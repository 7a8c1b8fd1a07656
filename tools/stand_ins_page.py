"""``python -m tools.docs`` also writes docs/stand-ins.md: verdicts on stand-ins and on real data.

The results on stand-ins are those of ``docs/stand-ins.csv``, which no command makes any more. The
results on real data are the published claims of scale small.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from replication.claims.judge import STATUSES
from replication.report.tables import markdown_escape, pipe_table

PAGE = Path("docs") / "stand-ins.md"
ROWS = PAGE.with_suffix(".csv")
REAL = Path("results") / "published" / "small" / "claims.csv"
DECIDED = STATUSES[:3]

ABOUT = """\
# Verdicts on stand-ins and on real data

Before scale `small` trained models on real images, small models were trained on stand-ins: images
that we composed of two photographs and scans of digits. What came out there is no evidence about
the papers. [`{name}`]({name}) has the {decided} empirical claims that were judged on stand-ins,
each at the scale that trained its models longest ([scales](protocol.md#scales-on-stand-ins)).

A claim is listed here when it has been judged on real data, too. {both} have been, several of them
on the same models, and {same} have the same verdict on both. So a verdict on a stand-in does not
tell that on real data.
"""
ABOUT_CLAIMS = """\
A cell below has the left side of the claim less its right side, with its 95 % interval, and the
verdict, which also depends on the number of claims. The unit is a percentage point for accuracies
and consistencies and a radian for angles; other quantities have none. Octic models are wider than
ViT in both; at scale small they have 12 to 19 % more FLOPs.
"""


def judged_on_both(root: Path) -> pd.DataFrame:
    """Return the claims decided on stand-ins and on real data, each with both results.

    The index is ``<paper>/<claim>``. The names of the columns on stand-ins end in ``_before``.
    """
    real = pd.read_csv(root / REAL)
    real.index = real["paper"] + "/" + real["id"]
    real["effect"] = real["left"] - real["right"]
    before = pd.read_csv(root / ROWS, index_col="claim").add_suffix("_before")
    real = real[real["status"].isin(DECIDED)]
    return real.join(before, how="inner")


def page(root: Path = Path()) -> str:
    """Return the page as Markdown."""
    both = judged_on_both(root)
    about = ABOUT.format(
        name=ROWS.name,
        decided=len(pd.read_csv(root / ROWS)),
        both=len(both),
        same=(both["status"] == both["status_before"]).sum(),
    )
    return "\n".join([about, _counts(both), "", ABOUT_CLAIMS, _claims(both), ""])


def _counts(both: pd.DataFrame) -> str:
    counts = pd.crosstab(both["status_before"], both["status"])
    counts = counts.reindex(index=DECIDED, columns=DECIDED, fill_value=0)
    header = ["verdict on a stand-in", *(f"{status} on real data" for status in DECIDED)]
    return pipe_table(header, [[name, *map(str, row)] for name, *row in counts.itertuples()])


def _claims(both: pd.DataFrame) -> str:
    header = ["claim", "stand-in", "scale", "real data"]
    rows = [
        [
            f"`{name}`: {markdown_escape(claim['statement'].rstrip('.'))}",
            _result(claim, "_before"),
            f"`{claim['scale_before']}`",
            _result(claim),
        ]
        for name, claim in both.iterrows()
    ]
    return pipe_table(header, rows, numbers=False)


def _result(claim: pd.Series, suffix: str = "") -> str:
    decimals = 1 if claim["unit"] in ("%", "points") else 2
    effect, half, status = (claim[field + suffix] for field in ("effect", "half_width", "status"))
    if pd.isna(half):
        return f"{effect:+.1g} (one seed), {status}"
    return f"{effect:+.{decimals}f} ± {half:.{decimals}f}, {status}"
