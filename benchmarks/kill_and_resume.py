"""Kill a training at random moments, resume it each time, compare the results bit for bit.

The training runs on the CPU, on the digits, with everything that has state or is random. It is that
of a small Vision Transformer, with Mixup, CutMix, erasing, stochastic depth and a moving average,
or that of a small I8 by DINOv2, with crops, masks, a centre, a teacher and saved teachers. First it
runs without interruption, in its own process. Then it runs again, and is killed (SIGKILL) and
resumed ``--kills`` times, each time after a random number of further steps and a random part of a
step. It saves a checkpoint after every step, so many kills interrupt the writing of a checkpoint.

    python benchmarks/kill_and_resume.py --kills 10
    python benchmarks/kill_and_resume.py --kills 10 --task self_supervision

The exit status is 1 if the weights or losses differ, or if a kill came after the training's end.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from replication.config.datasets import load_registry
from replication.config.recipe_types import KINDS as RECIPE_TYPES

CLASSIFICATION = {
    "model": {
        "name": "vit_tiny_patch16_224",
        "args": {
            "img_size": 28,
            "patch_size": 7,
            "embed_dim": 48,
            "depth": 4,
            "num_heads": 3,
            "drop_path_rate": 0.1,
        },
    },
    "data": {"dataset": "digits", "image_size": 28},
    "augmentation": {"scale": [0.5, 1.0], "mixup": 0.2, "cutmix": 1.0, "erase_prob": 0.25},
    "label_smoothing": 0.1,
    "optimizer": {"lr": 0.001, "clip_grad": 1.0},
    "schedule": {"epochs": 10, "warmup_epochs": 1},
    "batch": {"size": 64, "micro": 32},
    "ema_decay": 0.99,
}
SELF_SUPERVISION = {
    "task": "self_supervision",
    "model": {
        "name": "octic_i8_vit_large_patch16_224",
        "args": {"img_size": 16, "patch_size": 4, "embed_dim": 32, "depth": 2, "num_heads": 2},
    },
    "data": {"dataset": "digits", "image_size": 16, "crop_pct": 1.0},
    "crops": {
        "local_count": 2,
        "local_size": 8,
        "global_scale": [0.6, 1],
        "local_scale": [0.3, 0.7],
        "hflip": 0.5,
        "color_jitter": [0.4, 0.4, 0.2, 0.1],
        "color_jitter_prob": 0.8,
        "gray_prob": 0.2,
        "blur_prob": [0, 0.9, 0.5],
        "blur_kernel": 3,
        "solarize_prob": 0.2,
    },
    "masks": {"probability": 0.5, "ratio": [0.1, 0.5]},
    "head": {"hidden": 32, "bottleneck": 16, "prototypes": 64},
    "teacher": {
        "momentum": [0.9, 1.0],
        "temperature": [0.04, 0.07],
        "temperature_steps": 30,
        "centering": "softmax",
    },
    "koleo_weight": 0.1,
    "drop_path": 0.3,
    "optimizer": {
        "lr": 2e-3,
        "weight_decay": [0.04, 0.4],
        "layer_decay": 0.9,
        "patch_embed_scale": 0.2,
        "clip_grad": 3.0,
    },
    "schedule": {
        "steps": 100,
        "warmup_steps": 10,
        "min_lr": 1e-6,
        "freeze_last_layer_steps": 3,
        "save_teacher_steps": 10,
    },
    "batch": {"size": 32, "micro": 16},
}
KINDS = {"classification": CLASSIFICATION, "self_supervision": SELF_SUPERVISION}
DATASETS = Path(__file__).parents[1] / "configs" / "datasets.yaml"
TRAIN = "--train"  # the option by which this script calls itself to train


def train(task: str, folder: Path) -> None:
    from replication.training.dispatch import TrainingRun, engine_of

    info = load_registry(DATASETS)["digits"]
    recipe = RECIPE_TYPES[task].model_validate(KINDS[task])
    engine_of(recipe).train(TrainingRun(recipe, 0, folder, info, folder, checkpoint_seconds=0.0))


def start(task: str, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, __file__, "--task", task, TRAIN, str(folder)]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def newest_step(folder: Path) -> int:
    """Return the step of the newest checkpoint, 0 before the first."""
    names = sorted(path.stem for path in (folder / "checkpoints").glob("step-*.pt"))
    return int(names[-1].removeprefix("step-")) if names else 0


def results(folder: Path) -> tuple[dict[str, bytes], list[tuple[int, float]]]:
    """Return the bytes of all files of weights, saved teachers included, and the log's losses."""
    entries = [
        json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    losses = [(entry["step"], entry["loss"]) for entry in entries]
    weights = {str(file.relative_to(folder)): file for file in folder.rglob("*.safetensors")}
    return {name: file.read_bytes() for name, file in weights.items()}, losses


def kill_after(process: subprocess.Popen[bytes], folder: Path, target: int, delay: float) -> bool:
    """Kill the training `delay` s after its checkpoint `target`; return whether it still ran."""
    while process.poll() is None and newest_step(folder) < target:
        time.sleep(0.002)
    time.sleep(delay)
    process.kill()
    return process.wait() == -9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=KINDS, default="classification")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    parser.add_argument(TRAIN, type=Path, metavar="FOLDER", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train:
        train(args.task, args.train)
        return

    draw = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as root:
        straight, killed = Path(root, "straight"), Path(root, "killed")
        begin = time.monotonic()
        start(args.task, straight).wait()
        steps = results(straight)[1][-1][0]
        step_seconds = (time.monotonic() - begin) / steps  # with start-up, so longer than a step
        print(f"uninterrupted: {steps} steps, {step_seconds:.3f} s each with start-up", flush=True)

        hits = 0
        for number in range(1, args.kills + 1):
            done = newest_step(killed)
            stride = max(1, (steps - done) // (args.kills - number + 2))
            target = done + draw.randint(1, stride)
            process = start(args.task, killed)
            hit = kill_after(process, killed, target, draw.uniform(0, step_seconds))
            hits += hit
            where = f"after step {newest_step(killed)}" if hit else "too late"
            print(f"kill {number}: {where}", flush=True)
        finish = start(args.task, killed).wait()
        same = finish == 0 and results(straight) == results(killed)
    verdict = "equal, bit for bit" if same else "DIFFERENT"
    print(f"{hits} of {args.kills} kills hit the training; weights and losses are {verdict}")
    sys.exit(0 if same and hits == args.kills else 1)


if __name__ == "__main__":
    main()
