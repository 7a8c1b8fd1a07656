"""What P-SHAP costs: forward passes of the test set, and Kernel SHAP for comparison.

The paper's ViT classifies 32-pixel images once (plain inference). Its P-SHAP is measured by sweeps
of 16, 4 and 2 permutations, all with the correction for few permutations, and by the authors'
pairs. If the shap package is installed, its KernelExplainer also solves the regression for a few
images on the background of one pair. All methods take turns, so that a machine that slows down
slows all of them. The table gives milliseconds per image, the median ratio to plain inference with
the quartiles over the rounds, and the target. Table E of the paper's results gives the accuracy of
each method.

    python benchmarks/position_shap.py --output benchmarks/position_shap.csv
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable
from functools import partial
from pathlib import Path

import vitrail.models  # noqa: F401  # isort: skip  (before timm: it repairs torchvision's import)

import numpy as np
import pandas as pd
import timm
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from replication.measures.throughput import time_in_turns
from vitrail.measures.permutable import Permutable
from vitrail.measures.position_shap.half_batches import draw_folds, position_shap_half_batches
from vitrail.measures.position_shap.measure import position_shap
from vitrail.provenance import provenance

PASSES = 8  # of plain inference in a round: a single pass is too short to be timed reliably
TARGETS = {
    16: 18.0,
    4: 6.0,
    2: 4.0,
}  # permutations: the longest time of a sweep, in times of one pass


def inference(model: Permutable, data: Dataset, batch_size: int, device: str) -> None:
    with torch.inference_mode():
        for _ in range(PASSES):
            for images, _labels in DataLoader(data, batch_size=batch_size):
                model(images.to(device)).argmax(dim=1).cpu()


def kernel_shap(model: Permutable, data: TensorDataset, count: int, device: str) -> None:
    """Explain images of the first fold by shap, on pairs of (image, embedding) indices."""
    from shap import KernelExplainer

    fold = draw_folds(len(data), model.positions)[0]
    images, labels = data.tensors
    embeddings = torch.cat([fold.permutations, torch.arange(model.positions)[None]])
    background = np.stack([fold.background, np.arange(len(fold.background))], axis=1)
    for sample in fold.samples[:count].tolist():

        def logit(pairs: np.ndarray, label: int = int(labels[sample])) -> np.ndarray:
            image, embedding = torch.from_numpy(pairs).long().unbind(dim=1)
            with torch.inference_mode():
                logits = model(images[image].to(device), embeddings[embedding].to(device))
            return logits[:, label].double().cpu().numpy()

        explainer = KernelExplainer(logit, background)
        explainer.shap_values(np.array([sample, len(background)]), silent=True, l1_reg=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--explained", type=int, default=8, help="images for KernelExplainer")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=Path, help="where to write the CSV")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model = timm.create_model("position_vit", embedding="ape").eval().to(args.device)
    data = TensorDataset(torch.randn(args.images, 3, 32, 32), torch.randint(10, (args.images,)))
    calls: dict[str, tuple[int, Callable[[], object]]] = {
        "inference": (
            PASSES * args.images,
            lambda: inference(model, data, args.batch_size, args.device),
        ),
        **{
            f"sweep, K={permutations}": (
                args.images,
                partial(
                    position_shap,
                    model,
                    data,
                    permutations=permutations,
                    batch_size=args.batch_size,
                ),
            )
            for permutations in TARGETS
        },
        "paired, batches of 32": (
            args.images,
            lambda: position_shap_half_batches(model, data),
        ),
    }
    if importlib.util.find_spec("shap"):
        explained = min(args.explained, 16)
        calls["KernelExplainer"] = (
            explained,
            lambda: kernel_shap(model, data, explained, args.device),
        )
    seconds = time_in_turns(
        {name: call for name, (_, call) in calls.items()}, args.device, args.rounds, warmup=1
    )
    each = {name: pd.Series(seconds[name]) / images for name, (images, _) in calls.items()}
    targets = {f"sweep, K={permutations}": most for permutations, most in TARGETS.items()}
    rows = []
    for name, times in each.items():
        low, middle, high = (times / each["inference"]).quantile([0.25, 0.5, 0.75])
        rows.append(
            {
                "measured": name,
                "ms_per_image": round(1000 * times.median(), 3),
                "ratio": round(middle, 2),
                "ratio_25": round(low, 2),
                "ratio_75": round(high, 2),
                "target": targets.get(name),
                "images": calls[name][0],
                "rounds": args.rounds,
            }
        )
    origin = provenance(args.device)
    table = pd.DataFrame(rows).assign(
        device=origin["device"], torch=torch.__version__, commit=origin["commit"]
    )
    print(table.to_string(index=False))
    if args.output:
        table.to_csv(args.output, index=False)


if __name__ == "__main__":
    main()
