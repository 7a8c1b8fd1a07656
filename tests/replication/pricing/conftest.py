"""A small checkout, whose targets are priced."""

from tests.replication.cli.conftest import (
    catalog,
    checkout,
    draw,
    fine_tuning,
    git,
    make,
    publish,
    rewrite,
    vitrail,
    write_results,
)

__all__ = [
    "catalog",
    "checkout",
    "draw",
    "fine_tuning",
    "git",
    "make",
    "publish",
    "rewrite",
    "vitrail",
    "write_results",
]
