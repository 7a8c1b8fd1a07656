"""Measurements that are taken once more: the only defence against a value that was made up."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from replication.ledger import read_record
from replication.plan.catalog import Catalog
from replication.plan.nodes import MeasurementNode
from replication.taking import take
from vitrail.commands import count, say
from vitrail.errors import VitrailError


def retaken_faults(catalog: Catalog, number: int) -> list[str]:
    """Take some measurements once more, drawn by chance; return what differs from their records.

    A measurement that shows times or memory is left out: other hardware changes them.

    Raises:
        VitrailError: no measurement was taken here, or one cannot be repeated.
    """
    of_hardware = {
        cell.measurement.path
        for artifact in catalog.artifacts
        for cell in artifact.cells
        if cell.measurement and cell.of_hardware
    }
    records = {path: read_record(path) for path in catalog.measurements if path not in of_hardware}
    comparable = {path: record for path, record in records.items() if record is not None}
    if not comparable:
        raise VitrailError(
            f"{catalog.runs_root} has no measurement of scale '{catalog.scale.name}' to repeat; "
            "run snakemake first"
        )
    drawn = random.SystemRandom().sample(sorted(comparable), min(number, len(comparable)))
    faults = []
    for path in drawn:
        record = comparable[path]
        assert isinstance(record.node, MeasurementNode)
        values = take(record.node)["values"]
        differing = differences(record.outcome["values"], values)
        say(f"{path}: {'differs' if differing else 'the same bits'}")
        if differing:
            faults.append(
                f"{path} does not have the values that its measurement gives: {differing[0]}"
            )
    say(f"{count(len(drawn), 'measurement')} of {len(comparable)} repeated.")
    return faults


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Name the values of two measurements, by seed and key, that have not the same bits."""
    return [
        f"{key} of seed {seed} is {before[seed].get(key)!r}, and now {values.get(key)!r}"
        for seed, values in after.items()
        for key in sorted(values.keys() | before[seed].keys())
        if repr(before[seed].get(key)) != repr(_as_json(values.get(key)))
    ]


def _as_json(value: Any) -> Any:
    """A value as it is read back from JSON."""
    return [_as_json(part) for part in value] if isinstance(value, list | tuple) else value
