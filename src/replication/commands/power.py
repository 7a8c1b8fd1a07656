"""``vitrail power``: the effects that claims can show at a scale, from the spread at another."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from replication.commands.options import Scale, open_catalog
from vitrail.commands import say, table
from vitrail.commands.app import Json, command

if TYPE_CHECKING:
    from replication.plan.catalog import Catalog, Paper
    from replication.plan.claims import Claim

Known = Annotated[
    str,
    typer.Option("--from", metavar="SCALE", help="The scale whose published results tell spreads."),
]


class Power(NamedTuple):
    """What a claim can show; NaN and None where it is not known.

    `std` is the standard deviation of its difference over seeds, `sees` half the 95 % interval with
    the `seeds` of this scale, `printed` the effect in the paper, `needs` the seeds to see that.
    """

    claim: str
    std: float
    seeds: int
    sees: float
    printed: float
    needs: int | None


@command()
def power(
    papers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PAPERS", help="Folders of configs/papers/.", show_default="all of them"
        ),
    ] = None,
    scale: Scale = None,
    known: Known = "study",
    as_json: Json = False,
) -> None:
    """Tell which effects the empirical claims can show.

    The spread over seeds is that of published results; half-widths are those of 95 % intervals,
    beside the printed effect and the seeds that it would take.

    \b
    vitrail power octic --scale study
    """
    catalog = open_catalog(scale)
    chosen = [catalog.paper(name) for name in papers or catalog.papers]
    found = [claim for paper in chosen for claim in powers(catalog, paper, known)]
    if as_json:
        say(json.dumps([_plain(claim) for claim in found], indent=2, allow_nan=False))
        return
    heads = ["claim", "std", "seeds", "sees", "printed", "seeds for it"]
    rows = [
        [
            claim.claim,
            *map(_written, claim[1:5]),
            claim.needs or (None if _nan(claim) else "> 1000"),
        ]
        for claim in found
    ]
    table(heads, rows, right=heads[1:])


def powers(catalog: Catalog, paper: Paper, known: str) -> Iterator[Power]:
    """What each empirical claim of a paper can show, by the published spread at another scale."""
    from replication.commands.results import published_folder
    from replication.evidence.claims import sides_of
    from replication.evidence.gates import printed_effect
    from replication.evidence.power import needed, spread, visible
    from replication.evidence.report import cells_of

    of_spread = open_catalog(known)
    folder = published_folder(of_spread)
    nodes = {
        name: of_spread.rendering_node(artifact)
        for name, artifact in of_spread.paper(paper.name).artifacts.items()
    }
    tables = {name: cells_of(node, folder) for name, node in nodes.items()}
    claims = [claim for claim in paper.claims if claim.kind == "empirical"]
    sides = sides_of(claims, tables, nodes)
    for claim in claims:
        rows = sides[claim.id].values()
        spreads = [found for pair in rows if not math.isnan(found := spread(*pair))]
        std = max(spreads, default=math.nan)
        effects = [printed_effect([side.printed for side in pair if side.printed]) for pair in rows]
        printed = min((abs(effect[0]) for effect in effects if effect), default=math.nan)
        seeds = _seeds(paper, claim)
        needs = None if math.isnan(std) or not printed > 0 else needed(std, printed)
        sees = math.nan if math.isnan(std) else visible(std, seeds)
        yield Power(f"{paper.name}/{claim.id}", std, seeds, sees, printed, needs)


def _plain(claim: Power) -> dict[str, str | float | None]:
    """A claim as JSON has it: None where there is no finite number."""
    named = claim._asdict().items()
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in named
    }


def _seeds(paper: Paper, claim: Claim) -> int:
    """The fewest seeds of a claim's cells at this scale; 0 if none is measured."""
    from replication.plan.registration import cells_of

    measured = (cell.measurement for cell in cells_of(claim, paper.artifacts))
    return min((len(of.seeds) for of in measured if of), default=0)


def _nan(claim: Power) -> bool:
    return math.isnan(claim.std) or math.isnan(claim.printed)


def _written(number: float) -> str | None:
    return None if math.isnan(number) else f"{number:.3g}"
