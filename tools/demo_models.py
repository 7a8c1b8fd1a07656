"""Export the models of the demo's page: ``python -m tools.demo_models``.

It exports models that a laptop trained (`MODELS`) to ONNX, with their normalisation inside, and
writes some of their test images: docs/demo/models/, which is committed.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import shutil
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
MODELS = {
    "shift": {"Swin": "swin_t-cifar10-circular", "A-Swin": "a_swin_t-cifar10-circular"},
    "octic": {"ViT": "vit-l", "H8": "h8-l", "D8": "d8-l"},
}
IMAGES, SPREAD = 6, 200  # images that are shown; those that tell how far logits spread


class FromPixels(nn.Module):
    """A model on pixels in [0, 1], ``(1, 3, H, W)``, instead of normalised ones."""

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


def export(catalog: Catalog, folder: Path) -> dict[str, Any]:
    """Write the models into a folder; return what the page needs to know of them."""
    told: dict[str, Any] = {"commit": head()}
    for paper, recipes in MODELS.items():
        about = catalog.paper(paper)
        side = about.recipe(next(iter(recipes.values()))).data.image_size
        info = about.run(next(iter(recipes.values()))).dataset
        dataset: Any = open_dataset(info, "val", Path())
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
        told[paper] = {
            "dataset": info.name,
            "side": side,
            "images": [_as_uri(picture) for picture in pictures[:IMAGES]],
            "labels": [label for _, label in shown[:IMAGES]],
            "models": models,
        }
    return told


def _save(model: onnx.ModelProto, file: Path) -> None:
    """Write a model without what tells where in our code each of its nodes comes from."""
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
    """Export the models of the laptop's runs."""
    folder = PAGE / "models"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    told = export(load_catalog(scale="laptop"), folder)
    (folder / "models.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


BICUBIC = Image.Resampling.BICUBIC

if __name__ == "__main__":
    exit_on_error(main)
