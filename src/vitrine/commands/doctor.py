"""``vitrine doctor``: is everything there that a scale needs, and what to do where it is not."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.filesize import decimal as size

from vitrine.commands import heading, say, table
from vitrine.commands.needs import DatasetNeed, datasets_needed, weights_needed
from vitrine.errors import VitrineError
from vitrine.plan.catalog import Catalog

PINNED = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)
SECONDS_FOR_SLURM = 10


def doctor(catalog: Catalog) -> bool:
    """Print the state of software, hardware and data; return whether the scale lacks nothing."""
    needs = datasets_needed(catalog.artifacts, catalog, counts=True)
    missing = [*_software(catalog.root), *_hardware(catalog), *_data(needs, catalog)]
    scale = catalog.scale.name
    if missing:
        heading(f"Missing for scale {scale}:")
        for sentence in missing:
            say(f"  {sentence}")
    else:
        say(f"Nothing is missing for scale {scale}.")
    return not missing


def version_differences(lock: Path) -> Iterator[tuple[str, str, str | None]]:
    """Packages whose installed version is not the locked one: name, locked, installed or None.

    A build's local part (2.13.0+cpu) is no difference.

    Raises:
        VitrineError: there is no lock.
    """
    try:
        text = lock.read_text()
    except OSError:
        raise VitrineError(f"cannot read {lock}; run this from the project's root") from None
    for name, locked in PINNED.findall(text):
        try:
            installed = version(name)
        except PackageNotFoundError:
            yield name, locked, None
            continue
        if installed.partition("+")[0] != locked.partition("+")[0]:
            yield name, locked, installed


def slurm() -> tuple[bool, str]:
    """Whether a SLURM controller answers, and what to say about it."""
    if shutil.which("sbatch") is None:
        return False, "no client (sbatch is not on the PATH)"
    try:
        ping = subprocess.run(
            ["scontrol", "ping"], capture_output=True, text=True, timeout=SECONDS_FOR_SLURM
        )
    except (OSError, subprocess.TimeoutExpired):
        return False, "client present, controller does not answer"
    if ping.returncode or "UP" not in ping.stdout:
        return False, "client present, controller down"
    return True, "controller up"


def _software(root: Path) -> list[str]:
    """Print Python and the packages that differ from the lock; return what is missing."""
    heading("Software")
    lock = root / "envs" / "requirements.lock"
    differences = list(version_differences(lock))
    say(f"Python {platform.python_version()} on {platform.platform()}")
    if not differences:
        say(f"Every package is as {lock} pins it.")
    for name, locked, installed in differences:
        if installed is not None:
            say(f"{name} is {installed}, the lock has {locked}")
    say()
    absent = ", ".join(f"{name}=={locked}" for name, locked, here in differences if here is None)
    return [f"packages of the lock: {absent}; install them with envs/install.sh"] if absent else []


def _hardware(catalog: Catalog) -> list[str]:
    """Print devices, memory, disk and SLURM; return what is missing."""
    import torch

    heading("Hardware")
    cuda = torch.cuda.device_count()
    names = [torch.cuda.get_device_name(index) for index in range(cuda)]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    reachable, answer = slurm()
    folders = (catalog.data_root, catalog.runs_root, Path(catalog.settings.results_root))
    rows: list[list[object]] = [
        ["CUDA devices", ", ".join(names) or "none"],
        ["CPU cores", cores],
        ["memory", size(memory)],
        ["SLURM", answer],
    ]
    for one in folders:
        rows.append([f"free in {one}/", size(shutil.disk_usage(_existing(one)).free)])
    table(["what", "found"], rows)
    if catalog.scale.device == "cpu" or cuda or reachable:
        return []
    return ["a CUDA device, or a SLURM cluster that has some; choose another scale with --scale"]


def _data(needs: list[DatasetNeed], catalog: Catalog) -> list[str]:
    """Print every dataset and published weights; return those that a person must place."""
    heading(f"Data in {catalog.data_root}/")
    rows: list[list[object]] = []
    for need in needs:
        download = f"Snakemake downloads {size(need.download_bytes)}"
        state = download if need.state == "to download" else need.state
        rows.append([need.info.name, need.info.licence, state, need.users])
    for weights in weights_needed(catalog.artifacts, catalog):
        licence = weights.entry.licence if weights.entry else "unknown"
        rows.append([weights.path.stem, licence, weights.state, weights.users])
    table(["what", "licence", "state", "needed by"], rows)
    blocking = [need for need in needs if need.state == "missing"]
    for need in blocking:
        heading(f"How to get {need.info.name}")
        say(f"{need.fault}")
        say()
    return [f"dataset {need.info.name}; it blocks {need.users}" for need in blocking]


def _existing(folder: Path) -> Path:
    """The folder, or the closest one above it that exists."""
    folder = folder.absolute()
    return next(place for place in (folder, *folder.parents) if place.exists())
