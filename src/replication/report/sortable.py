"""A table as one page of HTML to sort and to filter, which needs no network.

Style and script are written into it. A click on a heading sorts the rows by that column; rows are
found by their name, or by a column's least value. A cell that the measure refused says why.
"""

from __future__ import annotations

from markupsafe import Markup

from replication.report.formatting import Table
from replication.report.html_report import WEB, page_templates


def as_sortable(table: Table, home: str) -> str:
    """Return the page of a table; `home` is what it links to as the site's first page."""
    return (
        page_templates()
        .get_template("sortable.html.j2")
        .render(
            table=table,
            about=table.artifact,
            home=home,
            style=Markup((WEB / "report.css").read_text(encoding="utf-8")),
            script=Markup((WEB / "sortable.js").read_text(encoding="utf-8")),
        )
    )
