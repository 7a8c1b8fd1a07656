"""Measurements that are taken once more: the only defence against a value that was made up."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from replication.ledger import Record, read_record
from replication.plan.catalog import Catalog
from replication.plan.nodes import MeasurementNode
from replication.taking import take
from vitrail.commands import count, say
from vitrail.errors import VitrailError


def retaken_faults(catalog: Catalog, number: int) -> list[str]:
    """Take some measurements once more, drawn by chance; return what differs from their records.

    Numbers that other hardware changes (times, memory) are not compared, and a measurement that
    has no others is not drawn.

    Raises:
        VitrailError: no measurement was taken here, or one cannot be repeated.
    """
    hardware = keys_of_hardware(catalog)
    records = {path: read_record(path) for path in catalog.measurements}
    taken = {path: record for path, record in records.items() if record is not None}
    comparable = {
        path: record
        for path, record in taken.items()
        if _compared(record, hardware.get(path, frozenset()))
    }
    if not comparable:
        raise VitrailError(
            f"{catalog.runs_root} has no measurement of scale '{catalog.scale.name}' to repeat; run "
            "snakemake first"
        )
    drawn = random.SystemRandom().sample(sorted(comparable), min(number, len(comparable)))
    faults = []
    for path in drawn:
        record, left_out = comparable[path], hardware.get(path, frozenset())
        assert isinstance(record.node, MeasurementNode)
        again = take(record.node)
        now = Record(record.node, again)
        differing = differences(_compared(record, left_out), _compared(now, left_out))
        say(f"{path}: {'differs' if differing else 'the same bits'}")
        if differing:
            faults.append(
                f"{path} does not have the values that its measurement gives: {differing[0]}"
            )
    say(f"{count(len(drawn), 'measurement')} of {len(comparable)} repeated.")
    return faults


def keys_of_hardware(catalog: Catalog) -> dict[Path, frozenset[str]]:
    """The keys of each measurement whose cells another machine changes."""
    found: dict[Path, set[str]] = {}
    for artifact in catalog.artifacts:
        for cell in artifact.cells:
            if cell.measurement and cell.of_hardware:
                found.setdefault(cell.measurement.path, set()).add(cell.key)
    return {path: frozenset(keys) for path, keys in found.items()}


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Name the values of two measurements, by seed and key, that have not the same bits."""
    return [
        f"{key} of seed {seed} is {before[seed].get(key)!r}, and now {values.get(key)!r}"
        for seed, values in after.items()
        for key in sorted(values.keys() | before[seed].keys())
        if repr(before[seed].get(key)) != repr(values.get(key))
    ]


def _compared(record: Record, left_out: frozenset[str]) -> dict[str, Any]:
    """The values of a measurement by seed, as JSON has them, without those of hardware."""
    return {
        seed: {key: _as_json(value) for key, value in values.items() if key not in left_out}
        for seed, values in record.outcome["values"].items()
        if any(key not in left_out for key in values)
    }


def _as_json(value: Any) -> Any:
    return [_as_json(part) for part in value] if isinstance(value, list | tuple) else value
