"""Figures 1 to 6 and Appendix B's intensities, drawn from cells and from the illustrations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

Measurements = Sequence[Mapping[str, Any]]


def fig1(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw accuracy against multiply-adds and against throughput (Figure 1).

    Rows are "<family>, <size>", such as "D8, ViT-L/16"; columns are "Top-1 Acc.", "GMACs" and
    "Throughput (im/s)".
    """


def fig2(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw an intertwiner, dense in the regular basis, sparse in the isotypic one (Figure 2).

    The first measurement is `vitrine.octic.illustrations.intertwiner`.
    """


def fig3(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw the families' chains of blocks, and an octic block with its planes (Figure 3).

    The first measurement is `vitrine.octic.illustrations.block_planes` with the labels d8, i8, h8.
    """


def fig4a(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw the saving of a block by width, with its limit 16/3 (Figure 4a).

    Columns are widths, each row is a line.
    """


def fig4b(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw accuracy by the number of octic blocks k (Figure 4b).

    Columns are k, each row is a family.
    """


def fig5(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw the Cayley diagrams of a photograph and of its features (Figure 5).

    The first measurement is `vitrine.octic.illustrations.cayley`.
    """


def fig6(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw the principal components of the six banks of learned filters (Figure 6).

    The first measurement is `vitrine.octic.illustrations.learned_filters`.
    """


def figb1(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw arithmetic intensity by width, and where octic layers overtake (Appendix B).

    Columns are widths, rows are dense and octic layers; the first measurement is
    `vitrine.octic.measures.arithmetic_intensity`, whose "crossing" is marked.
    """
