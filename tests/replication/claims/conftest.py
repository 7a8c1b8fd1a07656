"""Cells and tables, for claims over them."""

from tests.replication.report.conftest import build

__all__ = ["build"]
