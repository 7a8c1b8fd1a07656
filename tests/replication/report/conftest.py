"""A small rendering and its measurement, to be varied by each test."""

from pathlib import Path

import pytest

from replication.config.paper import Printed
from replication.records.nodes import (
    MeasurementNode,
    RenderingNode,
    ShownCell,
    ShownColumn,
)

PATH = Path("runs/paper/measurements/accuracy.json")


class Build:
    """Makes the nodes that are rendered, with short arguments."""

    @staticmethod
    def cell(row="A", column="x", printed=None, std=None, **fields):
        """A cell that shows "row/column" of its measurement."""
        defaults = {
            "metric": "top-1 accuracy",
            "unit": "%",
            "measurement": PATH,
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
        return ShownCell(row=row, column=column, **{**defaults, **fields})

    @staticmethod
    def table(*cells, columns=None, **fields):
        """A table of cells, rows and columns in order of appearance."""
        measurements = tuple(dict.fromkeys(cell.measurement for cell in cells if cell.measurement))
        labels = dict.fromkeys(cell.column for cell in cells)
        defaults = {
            "paper": "paper",
            "name": "table1",
            "scale": "laptop",
            "output": Path("results/laptop/paper/table1.json"),
            "inputs": measurements,
            "code": "0123456789abcdef",
            "commit": None,
            "shape": "table",
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
        return RenderingNode(**{**defaults, **fields})

    @staticmethod
    def measurement(output=PATH, **fields):
        """The node of a measurement on nothing, under two seeds."""
        defaults = {
            "scale": "laptop",
            "paper": "paper",
            "name": "accuracy",
            "inputs": (),
            "code": "0123456789abcdef",
            "commit": None,
            "function": "module:function",
            "seeds": (0, 1),
            "device": "cpu",
            "data_root": Path("data"),
            "workers": 0,
        }
        return MeasurementNode(output=output, **{**defaults, **fields})

    @staticmethod
    def measured(*seeds):
        """What was measured under each seed, by key."""
        return {
            PATH: {
                "name": "accuracy",
                "seeds": [*range(len(seeds))],
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
