"""Every paper's claims name cells that exist and hold in print."""

from fnmatch import fnmatch

import pytest

from vitrine.artifacts.claims import (
    EVERY_ROW,
    Place,
    read_claims,
    refuse_unknown,
)
from vitrine.plan.catalog import load_catalog
from vitrine.plan.paper import read_reference

PAPERS = ["octic", "position", "shift", "variance"]

# What the printed numbers do not say: why stands beside each.
NOT_PRINTED = {
    "octic": ["throughput-*"],  # the claim is to do better
    "shift": ["mvitv2-parameters"],  # printed in whole millions only
}


def claims_of(paper):
    return read_claims(paper.folder / "claims.yaml")


@pytest.fixture(scope="module", params=PAPERS)
def full(request):
    return load_catalog(scale="full").paper(request.param)


def test_every_claim_names_cells_that_exist(full):
    claims = claims_of(full)
    assert claims
    refuse_unknown(claims, full.artifacts, full.artifacts)


def test_the_paper_keeps_its_own_claims(full):
    tested = 0
    for claim in claims_of(full):
        left, right = (printed(full, side) for side in (claim.left, claim.right))
        known = isinstance(left, float) and isinstance(right, float)
        if not known or any(fnmatch(claim.id, one) for one in NOT_PRINTED.get(full.name, [])):
            continue
        gap = {"above": left - right, "below": right - left, "equal": -abs(left - right)}
        if claim.relation in ("above", "below"):
            assert gap[claim.relation] > claim.margin, claim.id
        else:
            assert gap.get(claim.relation, left - right) >= -claim.margin - 1e-9, claim.id
        tested += 1
    assert tested


def printed(paper, side):
    """The printed number of one side; None where a figure or a word is all there is."""
    if not isinstance(side, Place):
        return side
    if side.row == EVERY_ROW:
        return None
    cells = read_reference(paper.folder / "reference" / f"{side.artifact}.csv")
    cell = cells.get((side.row, side.column))
    return cell.value if cell else None
