"""Write timm's ``config.json`` and a model card for a trained run.

They lie beside the weights of every run. After ``import vitrail.models``,
``timm.create_model("local-dir:<run folder>", pretrained=True)`` loads the trained model.
"""

# decides no number

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from timm.models._hub import save_config_for_hf
from torch import nn

from replication.config.schema import as_yaml
from replication.images.transforms import normalization
from vitrail.files import atomic_path

if TYPE_CHECKING:
    from replication.config.datasets import DatasetInfo
    from replication.config.recipe import Training
    from replication.config.recipe_types import AnyRecipe

CARD = """---
library_name: {library}
license: apache-2.0
tags:
- {task}
- {library}
- vitrail
---
# {name}

{use}

Trained on {info.title} ({info.train_images} images of {info.classes} classes; {info.licence}), \
{info.split}.
The weights are under Apache-2.0 as far as the terms of the data allow.

## Recipe

```yaml
{recipe}```

Commit {commit}, seed {seed}.
"""


def write_config(model: nn.Module, recipe: Training, info: DatasetInfo, folder: Path) -> None:
    """Write timm's ``config.json``: the model's architecture and its preprocessing of images.

    For a model without timm's attribute `pretrained_cfg`, no file is written.
    """
    if not hasattr(model, "pretrained_cfg"):
        return
    data = recipe.data
    mean, std = normalization(info, data.normalization)
    config = {
        "input_size": (3, data.image_size, data.image_size),
        "interpolation": data.interpolation,
        "crop_pct": data.crop_pct,
        "crop_mode": data.crop_mode,
        "mean": mean,
        "std": std,
    }
    with atomic_path(folder / "config.json") as partial:
        save_config_for_hf(model, str(partial), data_config=config)


def model_card(
    recipe: AnyRecipe, info: DatasetInfo, *, name: str, source: str, seed: int, commit: str
) -> str:
    """Return the model card of a run, in Markdown: usage, dataset, licence, recipe.

    `source` is the name by which timm loads the run, such as ``local-dir:FOLDER``.
    """
    return CARD.format(
        library=recipe.library,
        task=recipe.hub_task,
        name=name,
        use=recipe.usage.format(source=source),
        info=info,
        recipe=as_yaml(recipe.shown()),
        seed=seed,
        commit=commit,
    )
