"""A small artifact and its measurement, to be varied by each test."""

from pathlib import Path

import pytest

from replication.plan.catalog import Artifact, Cell, Measurement
from replication.plan.paper import Labelled, Printed

PATH = Path("runs/paper/accuracy.json")


class Build:
    """Makes the catalogue's objects with short arguments."""

    @staticmethod
    def measurement():
        return Measurement(
            paper="paper",
            name="accuracy",
            function="module:function",
            args={},
            seeds=(0, 1, 2),
            device="cpu",
            datasets=(),
            run=None,
            described=None,
            path=PATH,
            as_printed=True,
        )

    def cell(self, row="A", column="x", printed=None, std=None, **fields):
        """A cell whose measurement's key is "row/column"."""
        defaults = {
            "metric": "top-1 accuracy",
            "unit": "%",
            "measurement": self.measurement(),
            "key": f"{row}/{column}",
            "digits": 1,
            "exact": False,
            "comparable": True,
            "of_hardware": False,
            "printed": None if printed is None else Printed(printed, std, "Table 1, p. 2"),
        }
        return Cell(row=row, column=column, **{**defaults, **fields})

    def table(self, *cells, columns=None, **fields):
        """A table of cells, rows and columns in order of appearance."""
        defaults = {
            "paper": "paper",
            "name": "table1",
            "kind": "table",
            "title": "Accuracy & cost",
            "caption": "Accuracy (%) of A_1.",
            "source": "Table 1, p. 2",
            "note": "",
            "row_header": "Model",
            "rows": tuple(dict.fromkeys(cell.row for cell in cells)),
            "columns": columns
            or tuple(Labelled(label=one) for one in dict.fromkeys(cell.column for cell in cells)),
            "cells": cells,
            "measurements": tuple(dict.fromkeys(c.measurement for c in cells if c.measurement)),
            "draw": None,
            "digits": 1,
        }
        return Artifact(**{**defaults, **fields})

    @staticmethod
    def measured(*seeds):
        """What was measured under each seed, by key."""
        return {
            PATH: {
                "name": "accuracy",
                "dataset": "digits",
                "recipe_hash": "abcd1234",
                "sha256": "fedcba9876543210",
                "values": {str(seed): values for seed, values in enumerate(seeds)},
                "provenance": {
                    "device": "cpu: a processor, 1 thread",
                    "commit": "0123456789abcdef",
                },
            }
        }


@pytest.fixture
def build():
    return Build()
