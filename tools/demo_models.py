"""Export the models of the demo's page: ``python -m tools.demo_models [PAPER ...]``.

It exports trained models (`MODELS`) to ONNX, with the normalisation of images as part of the model,
and writes some of their test images. Both go to docs/demo/models/, which is committed. The models
of a paper are of one scale (`SCALES`), whose runs must exist. Files of papers that are not named
are not changed.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import timm
import torch
from PIL import Image
from torch import Tensor, nn

import vitrail.models  # noqa: F401 (registers them)
from replication.images.opening import build as open_dataset
from replication.plan.catalog import Catalog, load_catalog
from vitrail.errors import exit_on_error
from vitrail.provenance import head

PAGE = Path("docs") / "demo"
FOLDER = PAGE / "models"
MODELS = {
    "shift": {"Swin": "swin_t-cifar10-circular", "A-Swin": "a_swin_t-cifar10-circular"},
    "octic": {"ViT": "vit-l", "H8": "h8-l", "D8": "d8-l"},
}
SCALES = {"shift": "laptop", "octic": "small"}
IMAGES, SPREAD = 6, 200  # images shown; images from which accuracy and spread are computed
APART = SPREAD // IMAGES  # images shown are this far apart: a dataset may be ordered by class


class FromPixels(nn.Module):
    """A model that takes pixels in [0, 1], ``(1, 3, H, W)``, and normalises them itself."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        for name in ("mean", "std"):
            self.register_buffer(name, torch.tensor(model.pretrained_cfg[name])[:, None, None])

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the logits ``(1, classes)``."""
        return self.model((pixels - self.mean) / self.std)


def export(paper: str, catalog: Catalog, folder: Path) -> dict[str, Any]:
    """Write a paper's models into a folder; return the data that the page needs about them."""
    recipes, about = MODELS[paper], catalog.paper(paper)
    first = about.run(next(iter(recipes.values())))
    info, side = first.dataset, about.recipe(first.name).data.image_size
    dataset: Any = open_dataset(info, "val", catalog.data_root)
    step = len(dataset) // SPREAD
    shown = [dataset[step * index] for index in range(SPREAD)]
    pictures = [image.convert("RGB").resize((side, side), BICUBIC) for image, _ in shown]
    pixels = torch.from_numpy(np.stack([np.asarray(picture) for picture in pictures]))
    pixels = pixels.permute(0, 3, 1, 2).float() / 255
    models = []
    for name, recipe in recipes.items():
        run = about.run(recipe)
        model = timm.create_model(f"local-dir:{run.folder}", pretrained=True)
        whole = FromPixels(model.eval())
        file = folder / f"{paper}-{name.lower().replace(' ', '-')}.onnx"
        program: Any = torch.onnx.export(whole, (pixels[:1],), verbose=False)
        _save(program.model_proto, file)
        with torch.inference_mode():
            logits = whole(pixels)
        right = logits.argmax(dim=1) == torch.tensor([label for _, label in shown])
        models.append(
            {
                "name": name,
                "file": file.name,
                "recipe": run.recipe.hash,
                "run": run.name,
                "seed": run.seed,
                "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
                "spread": logits.std().item(),
                "accuracy": 100 * right.double().mean().item(),
            }
        )
    return {
        "commit": head(),
        "scale": catalog.scale.name,
        "dataset": info.title,
        "side": side,
        "images": [_as_uri(picture) for picture in pictures[::APART][:IMAGES]],
        "labels": [label for _, label in shown[::APART][:IMAGES]],
        "models": models,
    }


def _save(model: onnx.ModelProto, file: Path) -> None:
    """Write a model without the metadata that names the code from which each node comes."""
    for part in (model.graph, *model.functions):
        for node in part.node:
            node.ClearField("metadata_props")
            node.ClearField("doc_string")
        for value in (*part.value_info, *getattr(part, "input", ()), *getattr(part, "output", ())):
            if not isinstance(value, str):
                value.ClearField("metadata_props")
    onnx.save(model, file)


def _as_uri(picture: Image.Image) -> str:
    file = io.BytesIO()
    picture.save(file, "png")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def main() -> None:
    """Export the models of the papers that the command line names, or of all."""
    index = FOLDER / "models.json"
    told = json.loads(index.read_text(encoding="utf-8"))
    for paper in sys.argv[1:] or MODELS:
        told[paper] = export(paper, load_catalog(scale=SCALES[paper]), FOLDER)
    index.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


BICUBIC = Image.Resampling.BICUBIC

if __name__ == "__main__":
    exit_on_error(main)
