"""Results as the commands read them: where those published lie, and the claims of either."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from vitrine.artifacts.claims import claims_of_paper
from vitrine.artifacts.report import cells_of
from vitrine.plan.catalog import Catalog


def published_folder(catalog: Catalog) -> Path:
    """Where the committed results of the catalogue's scale lie."""
    return Path(catalog.settings.results_root) / "published" / catalog.scale.name


def claims_of(catalog: Catalog, folder: Path) -> pd.DataFrame:
    """Every paper's claims, judged on the results of one folder; their ids begin with the paper."""
    judged = []
    for paper in catalog.papers.values():
        tables = {name: cells_of(one, catalog, folder) for name, one in paper.artifacts.items()}
        claims = claims_of_paper(paper, tables, catalog.scale.name)
        judged.append(claims.assign(id=[f"{paper.name}/{name}" for name in claims["id"]]))
    return pd.concat(judged, ignore_index=True)
