"""``vitrail export``: a trained run as others take it, in timm's layout for hubs or mmengine's.

From ``config.json`` and ``model.safetensors`` of a classifier ``timm.create_model`` makes it again
with the same bits (after ``import vitrail.models``); a segmenter keeps its ``config.py`` and
``mmseg.pth``. The model card has recipe, data, terms and the numbers taken on these very weights.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi

from replication.engine.engine import builder_of
from replication.engine.hub import model_card, write_config
from replication.engine.model import load_weights
from replication.plan.datasets import find, load_registry
from replication.plan.kinds import KINDS
from replication.plan.schema import parse, read_mapping
from vitrail.commands import say
from vitrail.errors import VitrailError, first_line
from vitrail.files import sha256
from vitrail.provenance import read_provenance

HUB = "hf-hub:"


def export(run: Path, to: Path | None, seed: int, push: str | None) -> None:
    """Write a seed of the run in a folder to an empty folder, upload it to a hub, or both.

    Raises:
        VitrailError: the run is not trained, neither or a wrong place is given, or the hub refuses.
    """
    if to is None and push is None:
        raise VitrailError(
            "nowhere to export to: give --to FOLDER, --push hf-hub:USER/NAME, or both"
        )
    if push is not None and (not push.startswith(HUB) or push.count("/") != 1):
        raise VitrailError(f"--push '{push}' is no place of a hub: give hf-hub:USER/NAME")
    if to is not None and to.exists() and any(to.iterdir()):
        raise VitrailError(f"{to} is not empty: give --to a new folder")
    with tempfile.TemporaryDirectory() as temporary:
        folder = to or Path(temporary)
        _write(run / f"seed{seed}", folder, seed, push or f"local-dir:{to}")
        if to is not None:
            say(f"{run.name}, seed {seed}: {to}")
        if push is not None:
            say(f"{run.name}, seed {seed}: {_push(folder, push.removeprefix(HUB))}")


def _write(trained: Path, folder: Path, seed: int, source: str) -> None:
    weights, path = trained / "weights.safetensors", trained / "recipe.yaml"
    if not weights.is_file():
        raise VitrailError(f"{trained} has no trained weights: give the folder of a finished run")
    content = read_mapping(path)
    recipe = parse(KINDS[content.get("task", "classification")], content, str(path))
    info = find(recipe.data.dataset, load_registry())
    folder.mkdir(parents=True, exist_ok=True)
    for name in recipe.exported:
        shutil.copyfile(trained / name, folder / name)
    if not recipe.exported:
        model = builder_of(recipe).build_model(recipe, info.classes)
        load_weights(model, weights, recipe)
        write_config(model, recipe, info, folder)
        shutil.copyfile(weights, folder / "model.safetensors")
    card = model_card(
        recipe,
        info,
        name=trained.parent.name,
        source=source,
        seed=seed,
        commit=(read_provenance(trained) or {}).get("commit", "unknown"),
        numbers="".join(_numbers(trained.parent, seed, sha256(weights))),
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def _numbers(run: Path, seed: int, digest: str) -> Iterator[str]:
    """Yield a table of the measurements that were taken on these weights, if there are any."""
    rows = []
    for file in sorted((run / "measurements").glob("*.json")):
        taken: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if taken.get("weights", {}).get(str(seed)) != digest:
            continue
        for key, value in taken["values"][str(seed)].items():
            if isinstance(value, int | float):
                rows.append(f"| {taken['name']} | {key} | {value:.6g} | {taken['dataset']} |\n")
    if rows:
        yield "## Numbers\n\n| measure | quantity | value | data |\n|---|---|---|---|\n"
        yield from (*rows, "\n")


def _push(folder: Path, repository: str) -> str:
    try:
        hub = HfApi()
        hub.create_repo(repository, exist_ok=True)
        return str(hub.upload_folder(repo_id=repository, folder_path=folder))
    except (OSError, ValueError) as error:  # huggingface_hub's own errors are OSErrors
        raise VitrailError(
            f"the hub does not take {repository} ({first_line(error)}): log in by `hf auth login` "
            "with a token that may write there"
        ) from None
