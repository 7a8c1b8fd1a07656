"""``vitrail export``: a trained run as others take it, in timm's layout for hubs or mmengine's.

From ``config.json`` and ``model.safetensors`` of a classifier ``timm.create_model`` makes it again
with the same bits (after ``import vitrail.models``); a segmenter keeps its ``config.py`` and
``mmseg.pth``. The model card has recipe, data, terms and the numbers taken on these very weights.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from vitrail.commands import say
from vitrail.commands.app import command
from vitrail.errors import VitrailError, first_line, os_errors

HUB = "hf-hub:"


@command()
def export(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder of a run: runs/PAPER/RECIPE-HASH.")
    ],
    to: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write the model to this new folder.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Export the run of this seed.")] = 0,
    push: Annotated[
        str | None,
        typer.Option(
            metavar="hf-hub:USER/NAME",
            help="Upload the model to this repository of a hub where you are logged in.",
        ),
    ] = None,
) -> None:
    """Write a trained model for timm or MMSegmentation.

    The model can be written to a new folder, uploaded to a hub, or both. Its model card has the
    recipe, the terms of the data, and the numbers measured on these weights.

    \b
    vitrail export runs/octic/h8-l-0a1b2c3d --to h8-l
    vitrail export runs/octic/h8-l-0a1b2c3d --push hf-hub:me/h8-l
    """
    from replication.plan.nodes import seed_folder

    if to is None and push is None:
        raise VitrailError(
            "nowhere to export to: give --to FOLDER, --push hf-hub:USER/NAME, or both"
        )
    if push is not None and (not push.startswith(HUB) or push.count("/") != 1):
        raise VitrailError(f"--push '{push}' is no place of a hub: give hf-hub:USER/NAME")
    with _new_folder(to) as folder:
        _write(seed_folder(run, seed), folder, seed, push or f"local-dir:{to}")
        if push is not None:
            say(f"{run.name}, seed {seed}: {_push(folder, push.removeprefix(HUB))}")
    if to is not None:
        say(f"{run.name}, seed {seed}: {to}")


@contextmanager
def _new_folder(to: Path | None) -> Iterator[Path]:
    """Give an empty folder that becomes `to` when the block has ended well; without `to`, none."""
    if to is None:
        with tempfile.TemporaryDirectory(prefix="vitrail-") as temporary:
            yield Path(temporary)
        return
    if to.is_symlink() and not to.exists():
        raise VitrailError(f"--to {to} is a link to nothing: remove the link, or give a new folder")
    with os_errors(f"cannot write to {to}", "give --to a new folder that you may write"):
        place = to.resolve()
        if place.exists() and any(place.iterdir()):
            raise VitrailError(f"--to {to} is not empty: give a new folder")
        place.parent.mkdir(parents=True, exist_ok=True)
        # Beside its place, as only within one file system a folder is renamed in one step.
        with tempfile.TemporaryDirectory(prefix=f".{place.name}.", dir=place.parent) as temporary:
            folder = Path(temporary) / place.name
            folder.mkdir()
            yield folder
            folder.replace(place)


def _write(trained: Path, folder: Path, seed: int, source: str) -> None:
    from replication.engine.engine import builder_of
    from replication.engine.hub import model_card
    from replication.engine.model import load_weights
    from replication.plan.datasets import find, load_registry
    from replication.plan.kinds import parse_recipe
    from replication.plan.nodes import WEIGHTS
    from replication.plan.schema import read_mapping
    from vitrail.files import sha256

    weights, path = trained / WEIGHTS, trained / "recipe.yaml"
    if not weights.is_file():
        raise VitrailError(f"{trained} has no trained weights: give the folder of a finished run")
    recipe = parse_recipe(read_mapping(path), str(path))
    info = find(recipe.data.dataset, load_registry())
    for name in recipe.exported:
        if not (trained / name).is_file():
            raise VitrailError(f"{trained} has no {name}: give the folder of a finished run")
        shutil.copyfile(trained / name, folder / name)
    if not recipe.exported:
        model = builder_of(recipe).build_model(recipe, info.classes)
        load_weights(model, weights, recipe)
        if (config := trained / "config.json").is_file():  # models of timm's kind have one
            shutil.copyfile(config, folder / config.name)
        shutil.copyfile(weights, folder / "model.safetensors")
    digest = sha256(weights)
    card = model_card(
        recipe,
        info,
        name=trained.parent.name,
        source=source,
        seed=seed,
        commit=_commit(trained.parent, seed, digest),
        numbers="".join(_numbers(trained.parent, seed, digest)),
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def _commit(run: Path, seed: int, digest: str) -> str:
    """The commit at which these weights were trained, "unknown" where no record says it.

    Raises VitrailError where a training's record is damaged.
    """
    from replication.ledger import read_record

    for path in sorted(run.glob("trained-*.json")):
        with _left_out_if_deleted():
            record = read_record(path)
        if record and record.outcome["sha256"].get(str(seed)) == digest:
            return str(record.outcome["facts"][str(seed)].get("commit", "unknown"))
    return "unknown"


def _numbers(run: Path, seed: int, digest: str) -> Iterator[str]:
    """Yield a table of the measurements that were taken on these weights, if there are any.

    Raises VitrailError where a measurement's file is damaged.
    """
    from replication.evidence.comparison import read_measurement

    rows = []
    for file in sorted((run / "measurements").glob("*.json")):
        with _left_out_if_deleted():
            taken = read_measurement(file)
        if taken is None or taken.get("weights", {}).get(str(seed)) != digest:
            continue
        name, data = taken.get("name", file.stem), taken.get("dataset")
        for key, value in taken["values"].get(str(seed), {}).items():
            if isinstance(value, int | float):
                rows.append(f"| {name} | {key} | {value:.6g} | {data} |\n")
    if rows:
        yield "## Numbers\n\n| measure | quantity | value | data |\n|---|---|---|---|\n"
        yield from (*rows, "\n")


@contextmanager
def _left_out_if_deleted() -> Iterator[None]:
    """Tell of a record that cannot be read what to do without the scale that it is of."""
    from replication.ledger import without_remedy

    try:
        yield
    except VitrailError as error:
        raise VitrailError(
            f"{without_remedy(error)}; delete it to export the weights without what it tells, or "
            "put a sound copy in its place"
        ) from None


def _push(folder: Path, repository: str) -> str:
    from huggingface_hub import HfApi

    try:
        hub = HfApi()
        hub.create_repo(repository, exist_ok=True)
        return str(hub.upload_folder(repo_id=repository, folder_path=folder))
    except (OSError, ValueError) as error:  # huggingface_hub's own errors are OSErrors
        raise VitrailError(
            f"the hub does not take {repository} ({first_line(error)}): log in by `hf auth login` "
            "with a token that may write there"
        ) from None
