"""Results as the commands read them: one scale's CSVs, ours or published, and their claims."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from vitrine.artifacts.claims import evaluate, read_claims
from vitrine.artifacts.comparison import COLUMNS, read_cells
from vitrine.catalog import Artifact, Catalog


def published_folder(catalog: Catalog) -> Path:
    """Where the committed results of the catalogue's scale lie."""
    return Path(catalog.settings.results_root) / "published" / catalog.scale.name


def cells_of(artifact: Artifact, catalog: Catalog, folder: Path) -> pd.DataFrame:
    """The tidy cells of an artifact in a results folder; none where it is not built."""
    path = folder / catalog.files(artifact)[0].relative_to(catalog.results)
    return read_cells(path) if path.is_file() else pd.DataFrame(columns=COLUMNS)


def claims_of(catalog: Catalog, folder: Path) -> pd.DataFrame:
    """Every paper's claims, judged on the results of one folder; their ids begin with the paper."""
    judged = []
    for paper in catalog.papers.values():
        tables = {name: cells_of(one, catalog, folder) for name, one in paper.artifacts.items()}
        claims = evaluate(read_claims(paper.folder / "claims.yaml"), tables, catalog.scale.name)
        judged.append(claims.assign(id=[f"{paper.name}/{name}" for name in claims["id"]]))
    return pd.concat(judged, ignore_index=True)
