"""``python -m tools.docs`` also writes docs/gpu.md: what `make gpu-check` measured on a GPU.

The measured numbers are the rows of ``benchmarks/gpu/nvidia-h200.csv``, as the run wrote them. The
papers' printed numbers are those of ``configs/papers/<paper>/reference``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from replication.config.paper import read_reference
from replication.report.tables import pipe_table

PAGE = Path("docs") / "gpu.md"
ROWS = Path("benchmarks") / "gpu" / "nvidia-h200.csv"

ABOUT = """\
# Measured on one GPU

One run of `make gpu-check` ([how](cluster.md#one-large-gpu-for-eight-minutes)) on one {device}, on
{date}, measured {numbers} numbers ([`{name}`](../{path})); commit {commit}, torch {torch}, timm
{timm}, triton {triton}. Before any run we predicted {predicted} of them for an H100
([`predictions.csv`](../benchmarks/gpu/predictions.csv)): {inside} are inside the predicted range.
The [last section](#outside-the-prediction) lists the {outside} outside it. All weights are random,
so no number says how accurate a model is.
"""
ABOUT_AGREEMENT = """\
## Do the models compute the same as on a CPU?

The 36 families are every embedding of `position`, the octic and flip-equivariant models, the
shift-equivariant models, and UperNet with Swin and A-Swin. The error of logits is the largest
difference from float64 on a CPU, divided by the largest logit. In bfloat16 it is below
{small:.3f}, except where rounding changes the selected grid: {flipped}.
"""
ABOUT_SPEED = """\
## Time and memory

Each ratio is a median over rounds in which both models take turns: 30 rounds for a block, 15 for a
model of `octic` Table 2, and 20 for a model of `shift` Table 3 (the paper: 100). The papers used
other GPUs: `octic` names an A100, `shift` a Quadro RTX 5000. So a difference from a printed ratio
may come from the GPU, from torch or from the implementation; this run cannot separate them.
"""
ABOUT_TABLE1 = """\
### Blocks of `octic` Table 1

Throughput of a D8 block divided by that of a dense block (64 images, bfloat16). The paper uses
`torch.compile` (App. E.4).
"""
ABOUT_TABLE2 = """\
### Models of `octic` Table 2

64 images, bfloat16, without `torch.compile`, except in the last two columns, where the blocks of
two models are compiled. The printed throughputs are of compiled models.
"""
ABOUT_TABLE3 = """\
### Models of `shift` Table 3

Loss of throughput of the adaptive model relative to the plain model, in percent; a negative number
is a gain (float32, no TF32). `per_layer` [selects grids](library.md#shift-equivariant-models)
by the paper's energies, with one window offset for each stage; Eq. 19 has one for each layer.
`per_stage` is our cheaper selection. `fixed` selects no grid, so it shows the cost of the rest of
our code. The paper says that all losses are below 20 % (p. 7); its loss of A-CvT-13 is printed as
10.69, but the printed throughputs differ by 8.10 %.
"""
ABOUT_TABLE4 = """\
### Modules of `shift` Table 4

Milliseconds that adaptivity adds to a module of A-Swin-T (RPE: of A-MViTv2-T), 128 images. As in
the paper, tokenization adds more than any patch merging, and each merging less than the one before.
Unlike in the paper, window selection adds less than the first merging, and RPE adds almost nothing.
"""
ABOUT_TABLE_A1 = """\
### Memory of `shift` Table A1

Peak allocated memory in training, 64 images: the plain model, and the adaptive model's change.
"""
ABOUT_FLOWERS = """\
## Flowers-102 by the recipe of `position` Table 2

Four trainings ran at a time for about 190 seconds. None ended: they reached
{steps} of 1,600 steps, so there is no accuracy. Together they took {speed:.0f} steps per second, of
512 images each; we expected {expected:.0f}.
"""
ABOUT_OUTSIDE = """\
## Outside the prediction

We predicted for an H100, from counts of operations, bytes and kernels. An H200 has 1.4 times the
memory bandwidth, which may explain wrong predictions. Compared with the predictions, plain ViTs are
faster, octic models gain less, five of the six modules of `shift` Table 4 take longer, A-Swin and
A-CvT (batch 1) and A-MViTv2 (batch 128) lose less throughput, CvT and A-CvT take less memory in
training, and `per_stage` certifies fewer images of A-CvT. We did not measure where the time is
spent. In the names of quantities `fast` is the selection `per_stage`, `off` is `fixed`, `eager` is
not compiled, `gain` is a ratio of throughputs, and an image is `certified` if rounding cannot
change its selected grids.
"""
FAMILIES = {"vit": "ViT", "h2": "H2", "i8": "I8", "h8": "H8", "d2": "D2", "d8": "D8"}
WIDTHS = {"l": "ViT-L/16", "h": "ViT-H/14"}
PLAIN = {"swin_t": "Swin-T", "swinv2_t": "SwinV2-T", "cvt_13": "CvT-13", "mvitv2_t": "MViTv2-T"}
COMPILED_VIT = "octic/table2 compiled/vit-l/images per second"
FLIPPED = 0.1  # error relative to the largest logit; roundings of bfloat16 alone are smaller
SELECTIONS = {"per_layer": "", "per_stage": "_fast", "fixed": "_off"}
MODULES = {
    "tokenization": "A. Tokenization",
    "merging 2": "A. Patch Merging S2",
    "merging 3": "A. Patch Merging S3",
    "merging 4": "A. Patch Merging S4",
    "windows": "A. Window Selection",
    "rpe": "A. RPE",
}


def read_rows(root: Path) -> pd.DataFrame:
    """Read the rows of the run, indexed by quantity; a row without a number has NaN as `value`."""
    return pd.read_csv(root / ROWS).set_index("quantity")


def page(root: Path = Path()) -> str:
    """Return the page as Markdown."""
    rows = read_rows(root)
    numbers = rows.dropna(subset="value")
    origin = rows.iloc[0]
    counts = rows["verdict"].value_counts()
    about = ABOUT.format(
        device=origin["device"],
        date=origin["time"].partition("T")[0],
        commit=origin["commit"],
        torch=origin["torch"],
        timm=origin["timm"],
        triton=origin["triton"],
        numbers=len(numbers),
        path=ROWS,
        name=ROWS.name,
        predicted=counts.sum(),
        inside=counts["inside"],
        outside=counts["outside"],
    )
    parts = [
        about,
        _about_agreement(numbers["value"]),
        _agreement(numbers),
        ABOUT_SPEED,
        ABOUT_TABLE1,
        _octic_blocks(root, numbers["value"]),
        ABOUT_TABLE2,
        _octic_models(root, numbers["value"]),
        ABOUT_TABLE3,
        _shift_models(root, numbers["value"]),
        ABOUT_TABLE4,
        _shift_modules(root, numbers["value"]),
        ABOUT_TABLE_A1,
        _shift_memory(root, numbers["value"]),
        _flowers(root, rows),
        ABOUT_OUTSIDE,
        _outside(numbers),
    ]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _printed(root: Path, paper: str, table: str) -> Callable[[str, str], float]:
    reference = read_reference(root / "configs" / "papers" / paper / "reference" / f"{table}.csv")
    return lambda row, column: float(reference[row, column].value)


def _about_agreement(value: pd.Series) -> str:
    """Return the text on agreement, with the families whose selected grids change in bfloat16."""
    errors = value[value.index.str.match("equality/.*/bf16")].rename(
        lambda name: name.split("/")[1].removesuffix(" paper")
    )
    flipped = errors[errors > FLIPPED]
    named = " and ".join(f"{name} ({error:.2f})" for name, error in flipped.items())
    small = errors.drop(flipped.index).max()
    return ABOUT_AGREEMENT.format(small=1e-3 * math.ceil(1e3 * small), flipped=named)


def _agreement(numbers: pd.DataFrame) -> str:
    """Return the table of the largest error of each kind, over all models."""

    def of(pattern: str, ends: Sequence[str] = ("",)) -> pd.Series:
        kept = numbers.index.str.match(pattern) & numbers.index.str.endswith(tuple(ends))
        return numbers.loc[kept, "value"]

    def families(found: pd.Series) -> str:
        return f"{found.index.str.split('/').str[1].nunique()} families"

    logits = {name: of("equality/", [f"/{name}"]) for name in ("cpu", "float32", "tf32", "bf16")}
    rows = [
        ["logits, CPU in float32", families(logits["cpu"]), f"{logits['cpu'].max():.1e}"],
        ["logits, GPU in float32", families(logits["float32"]), f"{logits['float32'].max():.1e}"],
        ["logits, GPU with TF32", families(logits["tf32"]), f"{logits['tf32'].max():.1e}"],
        ["logits, GPU in bfloat16", families(logits["bf16"]), f"{logits['bf16'].max():.2f}"],
    ]
    shifted = of("shift/.*/error")
    equal = of("shift/.*/equal")
    rows += [
        [
            "change of logits by a circular shift, GPU in float32",
            f"{len(shifted)} pairs: 8 models, 4 kinds of images",
            f"{shifted.max():g} ({equal.min():g} % of the images keep every bit)",
        ],
        [
            "tokens moved to another place of the image, after a convolution, linear or norm layer",
            "float32 and TF32",
            f"{of('bits by place/').min():g} % of the numbers keep every bit",
        ],
    ]
    for dtype in ("float32", "float16", "bfloat16"):
        kernel = of("kernel/(value|gradient)/", [f"/{dtype}"])
        shapes = kernel.index.str.split("/").str[2].nunique()
        rows.append(
            [f"Triton kernel of the octic GELU, {dtype}", f"{shapes} shapes", f"{kernel.max():.1e}"]
        )
    waits, resumed = of("syncs/"), of("resume/")
    rows += [
        [
            "how often a pass waits for the GPU",
            f"{families(waits)}, forward and training",
            f"{waits.max():g} times",
        ],
        [
            "training repeated; training killed and resumed",
            f"{len(resumed)} trainings",
            f"{resumed.max():g} of 115 tensors differ",
        ],
        [
            "P-SHAP, difference from the CPU",
            "APE and RoPE",
            f"{of('P-SHAP/.*/difference').max():.1e}",
        ],
    ]
    return pipe_table(["what is compared", "of", "largest error"], rows, numbers=False)


def _octic_blocks(root: Path, value: pd.Series) -> str:
    printed = _printed(root, "octic", "table1")
    rows = []
    for size in ("L", "H", "G", "e", "22B"):
        name = f"octic/block ViT-{size}"
        rows.append(
            [
                f"ViT-{size}",
                f"{value[f'{name}/FLOPs']:.2f}",
                f"{value[f'{name}/eager/gain']:.2f}",
                f"{value[f'{name}/compiled/gain']:.2f}",
                f"{printed(f'ViT-{size}', 'Throughput'):.2f}",
            ]
        )
    head = ["block", "ratio of FLOPs", "not compiled", "compiled", "printed (A100)"]
    return pipe_table(head, rows)


def _octic_models(root: Path, value: pd.Series) -> str:
    printed = _printed(root, "octic", "table2")
    rows = []
    for width, plain in WIDTHS.items():
        for key, family in FAMILIES.items():
            label = f"{key}-{width}"
            speed = f"octic/table2 eager/{label}/images per second"
            if speed not in value:
                continue
            row = plain if key == "vit" else f"{family}({plain})"
            throughput, memory = "Throughput (im/s)", "Peak Mem. (MB)"
            compiled = value.get(f"octic/table2 compiled/{label}/images per second")
            rows.append(
                [
                    row,
                    f"{value[speed]:,.0f}",
                    f"{value.get(f'octic/table2 eager/{label}/gain', 1.0):.2f}",
                    f"{printed(row, throughput) / printed(plain, throughput):.2f}",
                    f"{value[f'octic/memory/{label}']:,.0f}",
                    f"{printed(row, memory):,.0f}",
                    "" if compiled is None else f"{compiled:,.0f}",
                    "" if compiled is None else f"{compiled / value[COMPILED_VIT]:.2f}",
                ]
            )
    head = ["model", "images/s", "over ViT", "printed, over ViT (A100)"]
    head += ["peak memory (MiB)", "printed (MB)", "images/s, compiled blocks", "over ViT"]
    return pipe_table(head, rows)


def _shift_models(root: Path, value: pd.Series) -> str:
    printed = _printed(root, "shift", "table3")
    rows = []
    for label, plain in PLAIN.items():
        slower = [
            f"{100 * (1 - value[f'shift/table3 batch {batch}/a_{label}{selection}/gain']):.1f}"
            for batch in (128, 1)
            for selection in SELECTIONS.values()
        ]
        loss = printed(f"A-{plain} (Ours)", "Relative change (%)")
        speed = value[f"shift/table3 batch 128/{label}/images per second"]
        rows.append([f"A-{plain}", f"{speed:,.0f}", *slower, f"{loss:.1f}"])
    head = ["model", "plain, images/s, batch 128"]
    head += [f"{selection}, {batch}" for batch in (128, 1) for selection in SELECTIONS]
    return pipe_table([*head, "printed loss, 128"], rows)


def _shift_modules(root: Path, value: pd.Series) -> str:
    printed = _printed(root, "shift", "table4")
    rows = [
        [
            title,
            f"{value[f'shift/table4/{key}/delta']:.2f}",
            f"{printed(f'{title} (Ours)', 'Delta (ms)'):.2f}",
        ]
        for key, title in MODULES.items()
    ]
    return pipe_table(["module", "measured (ms)", "printed (ms)"], rows)


def _shift_memory(root: Path, value: pd.Series) -> str:
    printed = _printed(root, "shift", "tableA1")
    rows = []
    for label, plain in PLAIN.items():
        taken = {
            kind: value[f"shift/memory/{kind}/training"]
            for kind in (label, f"a_{label}", f"a_{label}_fast")
        }
        changes = [100 * (taken[f"a_{label}{kind}"] / taken[label] - 1) for kind in ("", "_fast")]
        column = "Training / Max. Allocated Memory, change (%)"
        told = printed(f"A-{plain} (Ours)", column)
        rows.append(
            [f"A-{plain}", f"{taken[label]:,.0f}", *(f"{x:+.1f}" for x in changes), f"{told:+.1f}"]
        )
    return pipe_table(
        ["model", "plain (MiB)", "per_layer (%)", "per_stage (%)", "printed (%)"], rows
    )


def _flowers(root: Path, rows: pd.DataFrame) -> str:
    stopped = rows[
        rows.index.str.startswith("flowers/") & rows["note"].str.startswith("stopped", na=False)
    ]
    steps = stopped["note"].str.extract(r"step (\d+) of")[0].astype(int)
    speed = float((steps / stopped["seconds"]).sum())
    predicted = pd.read_csv(root / "benchmarks" / "gpu" / "predictions.csv")
    seconds = float(predicted.set_index("quantity")["predicted"]["flowers/*/seconds"])
    return ABOUT_FLOWERS.format(
        steps=", ".join(f"{step:,}" for step in sorted(steps)),
        speed=speed,
        expected=4 * 1600 / seconds,
    )


def _outside(numbers: pd.DataFrame) -> str:
    rows = [
        [f"`{quantity}`", f"{row['value']:.3g} {row['unit']}", f"{row['low']:g} to {row['high']:g}"]
        for quantity, row in numbers[numbers["verdict"] == "outside"].iterrows()
    ]
    return pipe_table(["quantity", "measured", "predicted"], rows, numbers=False)
