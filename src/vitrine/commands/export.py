"""``vitrine export``: a trained run as others take it, in timm's layout for hubs or mmengine's.

A classifier becomes ``config.json`` and ``model.safetensors``, from which ``timm.create_model``
makes it again with the same bits (after ``import vitrine.models``); a segmenter keeps its
``config.py`` and ``mmseg.pth``. The model card has the recipe, the data, the numbers taken on these
very weights, and the terms.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import HfApi
from timm.models import save_for_hf

from vitrine.commands import say
from vitrine.errors import VitrineError, first_line
from vitrine.files import sha256
from vitrine.plan.datasets import DatasetInfo, find, load_registry
from vitrine.plan.recipe import Recipe
from vitrine.plan.schema import load
from vitrine.provenance import read_provenance
from vitrine.training.model import build_model, load_weights

HUB = "hf-hub:"
SEGMENTER = ("config.py", "mmseg.pth")
CARD = """---
library_name: {library}
license: apache-2.0
tags:
- image-{task}
- {library}
- vitrine
---
# {name}

{use}

Trained on {title} ({train_images} images of {classes} classes; {licence}), {split}.
The weights are under Apache-2.0 as far as the terms of the data allow.

{numbers}
## Recipe

```yaml
{recipe}```

Commit {commit}, seed {seed}.
"""
OF_TIMM = """```python
import vitrine.models, timm

model = timm.create_model("{source}", pretrained=True)
```"""
OF_MMSEG = "`vitrine mmseg test config.py mmseg.pth` evaluates this segmenter of MMSegmentation's."


def export(run: Path, to: Path | None, seed: int, push: str | None) -> None:
    """Write a seed of a run to a folder, upload it to a hub, or both.

    Args:
        run: the run's folder, with one in it for each seed.
        to: a folder, new or empty.
        seed: which seed.
        push: ``hf-hub:USER/NAME``, where the user is logged in.

    Raises:
        VitrineError: the run is not trained, neither or a wrong place is given, or the hub refuses.
    """
    if to is None and push is None:
        raise VitrineError(
            "nowhere to export to: give --to FOLDER, --push hf-hub:USER/NAME, or both"
        )
    if push is not None and (not push.startswith(HUB) or push.count("/") != 1):
        raise VitrineError(f"--push '{push}' is no place of a hub: give hf-hub:USER/NAME")
    if to is not None and to.exists() and any(to.iterdir()):
        raise VitrineError(f"{to} is not empty: give --to a new folder")
    with tempfile.TemporaryDirectory() as temporary:
        folder = to or Path(temporary)
        _write(run / f"seed{seed}", folder, seed, push or f"local-dir:{to}")
        if to is not None:
            say(f"{run.name}, seed {seed}: {to}")
        if push is not None:
            say(f"{run.name}, seed {seed}: {_push(folder, push.removeprefix(HUB))}")


def _write(trained: Path, folder: Path, seed: int, source: str) -> None:
    content = _content(trained)
    registry = load_registry()
    info = find(content["data"]["dataset"], registry)
    folder.mkdir(parents=True, exist_ok=True)
    segmenter = content.get("task") == "segmentation"
    if segmenter:
        for name in SEGMENTER:
            shutil.copyfile(trained / name, folder / name)
    elif content.get("task") == "self_supervision":
        raise VitrineError(f"{trained} is of self-supervision: export a classifier or a segmenter")
    else:
        _write_timm(trained, folder, info)
    card = CARD.format(
        library="mmsegmentation" if segmenter else "timm",
        task="segmentation" if segmenter else "classification",
        name=trained.parent.name,
        use=OF_MMSEG if segmenter else OF_TIMM.format(source=source),
        numbers="".join(_numbers(trained, seed)),
        recipe=yaml.safe_dump(content, sort_keys=False),
        seed=seed,
        commit=(read_provenance(trained) or {}).get("commit", "unknown"),
        **{
            name: getattr(info, name)
            for name in ("title", "train_images", "classes", "licence", "split")
        },
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def _content(trained: Path) -> dict[str, Any]:
    if not (trained / "weights.safetensors").is_file():
        raise VitrineError(f"{trained} has no trained weights: give the folder of a finished run")
    content: dict[str, Any] = yaml.safe_load((trained / "recipe.yaml").read_text(encoding="utf-8"))
    return content


def _write_timm(trained: Path, folder: Path, info: DatasetInfo) -> None:
    recipe = load(Recipe, trained / "recipe.yaml")
    model = build_model(recipe, info.classes)
    load_weights(model, trained / "weights.safetensors", recipe)
    mean, std = info.normalization(recipe.data.normalization)
    data = recipe.data
    config = {
        "input_size": (3, data.image_size, data.image_size),
        "interpolation": data.interpolation,
        "crop_pct": data.crop_pct,
        "crop_mode": data.crop_mode,
        "mean": mean,
        "std": std,
    }
    save_for_hf(model, str(folder), safe_serialization=True, data_config=config)


def _numbers(trained: Path, seed: int) -> Iterator[str]:
    """Yield a table of the measurements that were taken on these weights, if there are any."""
    digest, rows = sha256(trained / "weights.safetensors"), []
    for file in sorted((trained.parent / "measurements").glob("*.json")):
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
        raise VitrineError(
            f"the hub does not take {repository} ({first_line(error)}): log in by `hf auth login` "
            "with a token that may write there"
        ) from None
