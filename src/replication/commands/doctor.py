"""``vitrail doctor``: is everything there that a scale needs, and what to do where it is not."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.filesize import decimal as size

from replication.commands.options import Data, Results, Runs, Scale, open_catalog
from vitrail.commands import heading, say, table
from vitrail.commands.app import Json, command
from vitrail.errors import VitrailError

if TYPE_CHECKING:
    from replication.plan.catalog import Catalog

PINNED = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)
SECONDS_FOR_SLURM = 10


@command()
def doctor(
    as_json: Json = False,
    scale: Scale = None,
    data: Data = None,
    runs: Runs = None,
    results: Results = None,
) -> None:
    """Check that software, devices, disk and data are there.

    Says how to get what is missing. Exits with status 1 if something that the scale needs is
    missing.

    \b
    vitrail doctor
    vitrail doctor --scale full --data /datasets
    """
    catalog = open_catalog(scale, runs, results, data)
    name = catalog.scale.name
    record: dict[str, Any] = {
        "scale": name,
        "software": _software(catalog.root),
        "hardware": _hardware(catalog),
        "data": _data(catalog),
    }
    missing = record["missing"] = [*_missing(record, catalog)]
    if as_json:
        say(json.dumps(record, indent=2))
        raise typer.Exit(bool(missing))
    _print_software(record["software"])
    _print_hardware(record["hardware"])
    _print_data(record["data"], catalog)
    if missing:
        heading(f"Missing for scale {name}:")
        say(*(f"  {sentence}" for sentence in missing))
        raise typer.Exit(1)
    say(f"Nothing is missing for scale {name}.")


def version_differences(lock: Path) -> Iterator[tuple[str, str, str | None]]:
    """Packages whose installed version is not the locked one: name, locked, installed or None.

    A build's local part (2.13.0+cpu) is no difference.

    Raises:
        VitrailError: there is no lock.
    """
    try:
        text = lock.read_text()
    except OSError:
        raise VitrailError(f"cannot read {lock}; run this from the project's root") from None
    for name, locked in PINNED.findall(text):
        installed = None
        with suppress(PackageNotFoundError):
            installed = version(name)
        if installed is None or installed.partition("+")[0] != locked.partition("+")[0]:
            yield name, locked, installed


def slurm() -> tuple[bool, str]:
    """Whether a SLURM controller answers, and what to say about it."""
    if shutil.which("sbatch") is None:
        return False, "no client (sbatch is not on the PATH)"
    ask: Any = {"capture_output": True, "text": True, "timeout": SECONDS_FOR_SLURM}
    try:
        ping = subprocess.run(["scontrol", "ping"], **ask)
    except (OSError, subprocess.TimeoutExpired):
        return False, "client present, controller does not answer"
    if ping.returncode or "UP" not in ping.stdout:
        return False, "client present, controller down"
    return True, "controller up"


def _software(root: Path) -> dict[str, Any]:
    lock = root / "envs" / "requirements.lock"
    keys = ("package", "locked", "installed")
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "lock": str(lock),
        "other_versions": [
            dict(zip(keys, found, strict=True)) for found in version_differences(lock)
        ],
    }


def _hardware(catalog: Catalog) -> dict[str, Any]:
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    reachable, answer = slurm()
    free = {}
    for folder in (catalog.data_root, catalog.runs_root, Path(catalog.settings.results_root)):
        places = (folder.absolute(), *folder.absolute().parents)  # the closest one that exists
        free[str(folder)] = shutil.disk_usage(next(filter(Path.exists, places))).free
    return {
        "cuda_devices": [*map(torch.cuda.get_device_name, range(torch.cuda.device_count()))],
        "cpu_cores": cores,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "slurm": {"reachable": reachable, "answer": answer},
        "free_bytes": free,
    }


def _data(catalog: Catalog) -> list[dict[str, Any]]:
    """Every dataset and published weights; `fault` says how to place by hand what must be."""
    from replication.commands.state import datasets_needed, weights_needed

    found = []
    entry: dict[str, Any]
    for need in datasets_needed(catalog.artifacts, catalog, counts=True):
        fault = need.fault if need.state == "missing" else None
        entry = {"name": need.info.name, "licence": need.info.licence, "state": need.state}
        entry |= {"download_bytes": need.download_bytes, "needed_by": need.users, "fault": fault}
        found.append(entry)
    for file in weights_needed(catalog.artifacts, catalog):
        licence = file.entry.licence if file.entry else "unknown"
        entry = {"name": file.path.stem, "licence": licence, "state": file.state}
        found.append(entry | {"needed_by": file.users})
    return found


def _missing(record: dict[str, Any], catalog: Catalog) -> Iterator[str]:
    """Yield a sentence for each thing that the scale needs and that is not there."""
    software = record["software"]["other_versions"]
    for check in (catalog.require_code, catalog.require_weights):
        try:
            check()
        except VitrailError as error:
            yield str(error)
    absent = [
        f"{package['package']}=={package['locked']}"
        for package in software
        if not package["installed"]
    ]
    if absent:
        pinned = ", ".join(absent)
        yield f"packages of the lock: {pinned}; install them with envs/install.sh"
    found = record["hardware"]
    if catalog.scale.device != "cpu" and not (found["cuda_devices"] or found["slurm"]["reachable"]):
        yield "a CUDA device, or a SLURM cluster that has some; choose another scale with --scale"
    for entry in record["data"]:
        if entry.get("fault"):
            yield f"dataset {entry['name']}; it blocks {entry['needed_by']}"


def _print_software(found: dict[str, Any]) -> None:
    heading("Software")
    say(f"Python {found['python']} on {found['platform']}")
    if not found["other_versions"]:
        say(f"Every package is as {found['lock']} pins it.")
    for package in found["other_versions"]:
        if package["installed"] is not None:
            say(f"{package['package']} is {package['installed']}, the lock has {package['locked']}")
    say("")


def _print_hardware(found: dict[str, Any]) -> None:
    rows = [
        ["CUDA devices", ", ".join(found["cuda_devices"]) or "none"],
        ["CPU cores", found["cpu_cores"]],
        ["memory", size(found["memory_bytes"])],
        ["SLURM", found["slurm"]["answer"]],
        *([f"free in {folder}/", size(free)] for folder, free in found["free_bytes"].items()),
    ]
    table(["what", "found"], rows, title="Hardware")


def _print_data(found: list[dict[str, Any]], catalog: Catalog) -> None:
    rows = []
    for entry in found:
        download = entry.get("download_bytes")
        state = f"Snakemake downloads {size(download)}" if download else entry["state"]
        rows.append([entry["name"], entry["licence"], state, entry["needed_by"]])
    title = f"Data in {catalog.data_root}/"
    table(["what", "licence", "state", "needed by"], rows, title=title)
    for entry in found:
        if entry.get("fault"):
            heading(f"How to get {entry['name']}")
            say(entry["fault"], "")
