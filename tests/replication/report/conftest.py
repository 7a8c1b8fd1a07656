"""A small rendering and its measurement, to be varied by each test."""

from pathlib import Path

import pytest

from replication.config.paper import Printed, ShownColumn
from replication.records.nodes import MeasurementNode
from replication.records.specs import Artifact, Cell, Measurement

# Of more seeds than any test measures.
RECORDS = tuple(Path(f"runs/paper/measurements/accuracy-seed{seed}.json") for seed in range(50))


class Build:
    """Makes the nodes that are rendered, with short arguments."""

    @staticmethod
    def cell(row="A", column="x", printed=None, std=None, **fields):
        """A cell that shows "row/column" of its measurement."""
        defaults = {
            "metric": "top-1 accuracy",
            "unit": "%",
            "records": RECORDS,
            "key": f"{row}/{column}",
            "digits": 1,
            "exact": False,
            "comparable": True,
            "of_hardware": False,
        }
        if printed is not None:
            defaults["printed"] = Printed(value=printed, spread=std or "", source="Table 1, p. 2")
        else:
            defaults["printed"] = None
        return Cell(row=row, column=column, **{**defaults, **fields})

    @staticmethod
    def table(*cells, columns=None, **fields):
        """A table of cells, rows and columns in order of appearance."""
        measurements = tuple(dict.fromkeys(cell.records for cell in cells if cell.records))
        labels = dict.fromkeys(cell.column for cell in cells)
        defaults = {
            "paper": "paper",
            "name": "table1",
            "scale": "laptop",
            "kind": "table",
            "title": "Accuracy & cost",
            "caption": "Accuracy (%) of A_1.",
            "source": "Table 1, p. 2",
            "note": "",
            "row_header": "Model",
            "rows": tuple(dict.fromkeys(cell.row for cell in cells)),
            "columns": columns or tuple(ShownColumn(label=label) for label in labels),
            "cells": cells,
            "measurements": measurements,
            "draw": None,
            "digits": 1,
        }
        return Artifact(**{**defaults, **fields})

    @staticmethod
    def measurement(path):
        """The node of a measurement on nothing."""
        measurement = Measurement(
            paper="paper",
            name="accuracy",
            function="module:function",
            args={},
            seed=3,
            device="cpu",
            datasets=(),
            path=path,
        )
        return MeasurementNode(
            scale="laptop",
            measurement=measurement,
            output=path,
            inputs=(),
            code="0123456789abcdef",
            commit=None,
            data_root=Path("data"),
            workers=0,
        )

    @staticmethod
    def measured(*seeds):
        """What was measured under each seed, by key."""
        return {
            RECORDS[seed]: {
                "name": "accuracy",
                "seed": seed,
                "dataset": "digits",
                "recipe_hash": "abcd1234",
                "sha256": f"fedcba987654321{seed}",
                "values": values,
                "provenance": {
                    "device": "cpu: a processor, 1 thread",
                    "commit": "0123456789abcdef",
                },
            }
            for seed, values in enumerate(seeds)
        }


@pytest.fixture
def build():
    return Build()
