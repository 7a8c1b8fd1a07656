"""``vitrail doctor``: is everything there that a scale needs, and what to do where it is not."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.filesize import decimal as size

from replication.cli.options import (
    TARGETS,
    Data,
    Results,
    Runs,
    Scale,
    artifacts_of,
    open_catalog,
)
from replication.cluster import slurm
from replication.cpu_limits import MB, usable_cores, usable_memory
from vitrail.commands import count, heading, say, table
from vitrail.commands.app import Json, command
from vitrail.errors import VitrailError, did_you_mean
from vitrail.provenance import require_gpu_build

if TYPE_CHECKING:
    from replication.plan.catalog import Catalog
    from replication.records.specs import Artifact

PINNED = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)
NAMED = 2  # targets that a sentence names; of more it has the number


@command()
def doctor(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TARGETS", show_default=False, help=f"{TARGETS} Without one all is checked."
        ),
    ] = None,
    as_json: Json = False,
    scale: Scale = None,
    data: Data = None,
    runs: Runs = None,
    results: Results = None,
) -> None:
    """Check that software, devices, disk and data are there.

    Says how to get what is missing; --json also names all targets that need a dataset. Exits with
    status 1 if something that the targets need at this scale is missing.

    \b
    vitrail doctor
    vitrail doctor shift_table1 --scale full --data /datasets
    """
    catalog = open_catalog(scale, runs, results, data)
    artifacts = artifacts_of(catalog, targets or ["all"])
    name = catalog.scale.name
    record: dict[str, Any] = {
        "targets": targets or [],
        "scale": name,
        "software": _software(catalog.root),
        "hardware": _hardware(catalog),
        "data": _data(catalog, artifacts),
        "weights": _weights(catalog, artifacts),
    }
    record["missing"] = [*_missing(record, catalog, artifacts)]
    if as_json:
        say(json.dumps(record, indent=2))
        raise typer.Exit(bool(record["missing"]))
    _print_software(record["software"])
    _print_hardware(record["hardware"])
    _print_data(record, catalog)
    wanted = f"{', '.join(targets)} at scale {name}" if targets else f"scale {name}"
    if record["missing"]:
        heading(f"Missing for {wanted}:")
        say(*(f"  {sentence}" for sentence in record["missing"]))
        raise typer.Exit(1)
    say(f"Nothing is missing for {wanted}.")


def version_differences(lock: Path) -> Iterator[tuple[str, str, str | None]]:
    """Packages whose installed version is not the locked one: name, locked, installed or None.

    A build's local part (2.13.0+cpu) is no difference.

    Raises:
        VitrailError: there is no lock.
    """
    try:
        text = lock.read_text(encoding="utf-8")
    except OSError:
        raise VitrailError(f"cannot read {lock}; run this from the project's root") from None
    for name, locked in PINNED.findall(text):
        installed = None
        with suppress(PackageNotFoundError):
            installed = version(name)
        if installed is None or installed.partition("+")[0] != locked.partition("+")[0]:
            yield name, locked, installed


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

    reachable, answer = slurm.controller()
    free = {}
    absent = []
    for folder in (catalog.data_root, catalog.runs_root, Path(catalog.settings.results_root)):
        free[str(folder)] = shutil.disk_usage(_closest(folder)).free
        if not folder.exists():
            absent.append(str(folder))
    return {
        "cuda_devices": [*map(torch.cuda.get_device_name, range(torch.cuda.device_count()))],
        "cpu_cores": usable_cores(),
        "memory_bytes": usable_memory() * MB,
        "slurm": {"reachable": reachable, "answer": answer},
        "free_bytes": free,
        "folders_to_make": absent,
    }


def _data(catalog: Catalog, artifacts: Sequence[Artifact]) -> list[dict[str, Any]]:
    """Every dataset that is needed; `fault` says how to place by hand what must be."""
    from replication.report.progress import datasets_needed

    return [
        {
            "name": need.info.name,
            "licence": need.info.licence,
            "state": need.state,
            "download_bytes": need.download_bytes,
            "needed_by": need.users,
            "fault": need.fault if need.state == "missing" else None,
        }
        for need in datasets_needed(artifacts, catalog, counts=True)
    ]


def _weights(catalog: Catalog, artifacts: Sequence[Artifact]) -> list[dict[str, Any]]:
    """Every file of published weights that is needed."""
    from replication.report.progress import weights_needed

    return [
        {
            "name": file.path.stem,
            "licence": file.entry.licence if file.entry else "unknown",
            "state": file.state,
            "needed_by": file.users,
        }
        for file in weights_needed(artifacts, catalog)
    ]


def _missing(
    record: dict[str, Any], catalog: Catalog, artifacts: Sequence[Artifact]
) -> Iterator[str]:
    """Yield a sentence for each thing that is needed and not there."""
    software = record["software"]["other_versions"]
    for check in (catalog.require_code, catalog.require_devices, catalog.require_weights):
        try:
            check(artifacts)
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
    if catalog.scale.device != "cpu":
        yield from _missing_for_gpus(catalog, artifacts)
    if catalog.scale.device != "cpu" and not (found["cuda_devices"] or found["slurm"]["reachable"]):
        yield (
            "a CUDA device, or a SLURM cluster that has some (here: "
            f"{found['slurm']['answer']}); give the command where there is one, or choose another "
            "scale with --scale"
        )
    for dataset in record["data"]:
        if dataset["fault"]:
            users = dataset["needed_by"]
            told = ", ".join(users) if len(users) <= NAMED else count(len(users), "target")
            yield f"dataset {dataset['name']}; it blocks {told}"
    yield from _missing_permissions(record, catalog)
    on_cluster = catalog.scale.device != "cpu" and found["slurm"]["reachable"]
    yield from _missing_room(catalog, artifacts, on_cluster)


def _missing_room(
    catalog: Catalog, artifacts: Sequence[Artifact], on_cluster: bool
) -> Iterator[str]:
    """Say of the folders of runs and data if their disk is too small for what is still to come.

    On a cluster, as many trainings as the SLURM profile allows may run at once; elsewhere one.
    """
    from replication.cluster.partition_file import CONFIG, read_profile
    from replication.pricing.estimate import Estimate
    from replication.pricing.speed import costs_on

    needed: dict[int, int] = defaultdict(int)
    folders: dict[int, dict[str, Path]] = defaultdict(dict)
    at_once = 1.0
    if on_cluster:
        with suppress(VitrailError):  # `_missing_for_gpus` tells a mistake in the profile
            at_once = read_profile(catalog.root).jobs
    disk = Estimate(catalog, artifacts, costs_on(catalog, None)[1], (), at_once).disk
    for setting, folder in (("runs_root", catalog.runs_root), ("data_root", catalog.data_root)):
        device = _closest(folder).stat().st_dev
        folders[device][setting] = folder
        needed[device] += sum(number for _, where, number in disk if where.is_relative_to(folder))
    for device, held in folders.items():
        free = shutil.disk_usage(_closest(next(iter(held.values())))).free
        if needed[device] > free:
            several = at_once > 1 and "runs_root" in held  # each training that runs has checkpoints
            fewer = f"lower jobs in {CONFIG} so that fewer trainings run at once, " * several
            yield (
                f"{size(needed[device])} of room in {' and '.join(map(str, held.values()))}, whose "
                f"disk has {size(free)} free; make room, {fewer}or set {' or '.join(held)} "
                "to a folder on a larger disk"
            )


def _missing_permissions(record: dict[str, Any], catalog: Catalog) -> Iterator[str]:
    """Say if a folder cannot be written; of the data root, what would have to be written there."""
    for setting, folder in (
        ("runs_root", catalog.runs_root),
        ("results_root", Path(catalog.settings.results_root)),
    ):
        if not _is_writable(folder):
            yield f"permission to write in {folder}; set {setting} to a folder of your own"
    written = [
        need["name"]
        for need in (*record["data"], *record["weights"])
        if need["state"].startswith("to download") or _is_to_make(need["name"], catalog)
    ]
    root = catalog.data_root
    if written and not _is_writable(root):
        yield (
            f"permission to write in {root}, for {', '.join(written)}; set data_root to a folder "
            f"of your own, with links to what is there: ln -s {shlex.quote(str(root.absolute()))}/*"
            " FOLDER/"
        )


def _is_to_make(name: str, catalog: Catalog) -> bool:
    """Whether the graph makes a dataset, which it does once even if its folder is there."""
    made = name in catalog.datasets and catalog.datasets[name].source == "made"
    return made and not catalog.receipt_of(name).exists()


def _is_writable(folder: Path) -> bool:
    place = _closest(folder)
    return place.is_dir() and os.access(place, os.W_OK | os.X_OK)


def _closest(folder: Path) -> Path:
    """The folder, or the closest one above it that exists."""
    return next(filter(Path.exists, (folder.absolute(), *folder.absolute().parents)))


def _missing_for_gpus(catalog: Catalog, artifacts: Sequence[Artifact]) -> Iterator[str]:
    """What is wrong with torch or the partition file, where trainings run on GPUs."""
    from replication.cluster.partition_file import different_from
    from replication.pricing.room import jobs_of, partitions_of, without_room

    def of_partitions() -> Iterator[str]:
        yield from without_room(catalog, artifacts)
        asked = [*map(catalog.resources, jobs_of(catalog, artifacts))]
        yield from different_from(slurm.limits(), partitions_of(catalog), asked)

    def of_torch() -> Iterator[str]:
        require_gpu_build()
        yield from ()

    checks = (
        of_torch(),
        of_partitions(),
        _unknown_keys(catalog.root),
        _missing_account(catalog.root),
    )
    for check in checks:  # each file's first mistake is told, whatever the others have
        try:
            yield from check
        except VitrailError as error:
            yield str(error)


def _unknown_keys(root: Path) -> Iterator[str]:
    """Name the keys of the SLURM profile that are no options of Snakemake.

    Snakemake names neither the file nor the line.
    """
    from snakemake.cli import get_argument_parser

    from replication.cluster.partition_file import CONFIG, SLURM_RESOURCE
    from replication.config.schema import place_of, read_mapping

    if not (root / CONFIG).is_file():
        return
    written = read_mapping(root / CONFIG)
    options = [name.removeprefix("--") for name in get_argument_parser()._option_string_actions]
    for key in written:
        # Snakemake takes the beginning of one option for it, and reads __use_yte__ itself.
        of = sum(name.startswith(key) for name in options)
        ours = key.startswith("__") or SLURM_RESOURCE.match(key)  # the latter: `read_profile`
        if not ours and key not in options and of != 1:
            yield (
                f"{place_of(written, key)}: snakemake has no option '{key}'"
                f"{did_you_mean(key, options)}; correct the key"
            )


def _missing_account(root: Path) -> Iterator[str]:
    """Say if SLURM does not let the user use the account that the profile names."""
    from replication.cluster.partition_file import place_of, read_profile

    account = read_profile(root).account
    known = slurm.accounts() if account else set()
    if known and account.lower() not in known:
        yield (
            f"the right account: SLURM gives you {', '.join(sorted(known))}, and not {account}; "
            f"correct {place_of('slurm_account')}"
        )


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
        *(
            [
                f"free in {folder}/",
                size(free) + " (not there yet)" * (folder in found["folders_to_make"]),
            ]
            for folder, free in found["free_bytes"].items()
        ),
    ]
    table(["what", "found"], rows, title="Hardware")


def _print_data(record: dict[str, Any], catalog: Catalog) -> None:
    header = ["what", "licence", "state", "needed by"]
    for title, needs in (("Data", record["data"]), ("Published weights", record["weights"])):
        rows = []
        for need in needs:
            download = need.get("download_bytes")
            state = f"Snakemake downloads {size(download)}" if download else need["state"]
            users = count(len(need["needed_by"]), "target")
            rows.append([need["name"], need["licence"], state, users])
        if rows:
            table(header, rows, title=f"{title} in {catalog.data_root}/")
    for dataset in record["data"]:
        if dataset["fault"]:
            heading(f"How to get {dataset['name']}")
            say(dataset["fault"], "")
