"""Measurements that are taken once more: the only defence against a value that was made up."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

import torch

from replication.failures import remedies_written_out
from replication.ledger import read_record
from replication.plan.catalog import Catalog
from replication.plan.nodes import MeasurementNode
from replication.taking import take
from vitrail.commands import count
from vitrail.errors import VitrailError


def retaken_faults(catalog: Catalog, number: int, tell: Callable[[str], None]) -> list[str]:
    """Take some measurements once more, drawn by chance; return what differs from their records.

    Each is told as it is done.

    A measurement that shows times or memory is left out: other hardware changes them.

    Raises:
        VitrailError: no measurement was taken here, one cannot be repeated, or a record is damaged.
    """
    of_hardware = {
        cell.measurement.path
        for artifact in catalog.artifacts
        for cell in artifact.cells
        if cell.measurement and cell.of_hardware
    }
    comparable = {}
    for path in sorted(catalog.measurements.keys() - of_hardware):
        with remedies_written_out(catalog.node(path)):
            if record := read_record(path):
                comparable[path] = record
    if not comparable:
        raise VitrailError(
            f"{catalog.runs_root} has no measurement of scale '{catalog.scale.name}' to repeat; "
            f"run {catalog.snakemake('all')} first"
        )
    drawn = random.SystemRandom().sample(sorted(comparable), min(number, len(comparable)))
    faults = []
    for path in drawn:
        record = comparable[path]
        assert isinstance(record.node, MeasurementNode)
        torch.set_num_threads(record.node.resources.threads)  # as many as Snakemake gave it
        with remedies_written_out(record.node):
            values = take(record.node, anew=True)["values"]
        differing = differences(record.outcome["values"], values)
        tell(f"{path}: {'differs' if differing else 'the same bits'}")
        if differing:
            faults.append(
                f"{path} does not have the values that its measurement gives: {differing[0]}"
            )
    tell(f"{count(len(drawn), 'measurement')} of {len(comparable)} repeated.")
    return faults


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Name the values of two measurements, by seed and key, that have not the same bits."""
    after = json.loads(json.dumps(after))  # as a record is read back
    return [
        f"{key} of seed {seed} is {before[seed].get(key)!r}, and now {values.get(key)!r}"
        for seed, values in after.items()
        for key in sorted(values.keys() | before[seed].keys())
        if repr(before[seed].get(key)) != repr(values.get(key))
    ]
