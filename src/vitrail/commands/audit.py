"""``vitrail audit``: measure a model by the tests of all four papers, on a folder of images."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated

import typer

from vitrail.commands import count, printable, say, table
from vitrail.commands.app import (
    Checkpoint,
    ClassMap,
    Device,
    Images,
    Pretrained,
    Seed,
    Workers,
    command,
)
from vitrail.errors import VitrailError
from vitrail.files import write_atomically

LARGER = (1.25, 1.5, 2)  # test sizes in multiples of the model's own, rounded up to a STEP
STEP = 32  # pixels, a multiple of most models' patches and strides
FIRST_BATCH = {"cuda": 256}  # batch size of the first attempt; 16 on other devices


@command()
def audit(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A classifier: timm's name, hf-hub:OWNER/NAME or local-dir:FOLDER.",
        ),
    ],
    data: Images,
    pretrained: Pretrained = True,
    checkpoint: Checkpoint = None,
    class_map: ClassMap = None,
    images: Annotated[
        int,
        typer.Option(
            min=2, metavar="N", help="Measure on at most N images, spread evenly over the folder."
        ),
    ] = 50,
    size: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            metavar="PIXELS",
            show_default="1.25, 1.5 and 2 times the model's own",
            help="Test images of this side length, too; may be given several times.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", show_default="audit-MODEL", help="Write the results to this folder."
        ),
    ] = None,
    seed: Seed = 0,
    device: Device = None,
    workers: Workers = 0,
) -> None:
    """Test a classifier on images as the four papers do.

    Measures accuracy, circular and standard shifts, turns and mirrors, P-SHAP, and larger test
    images. Writes a page of plots (audit.png, audit.svg), all numbers (audit.csv) and what they
    answer in sentences (audit.txt). The parts that are measured are kept: the same command goes on
    where it was stopped. Where the folder has no labels of the model's classes, an image's label is
    the class that the model predicts.

    \b
    vitrail audit vit_tiny_patch16_224 --data photos
    vitrail audit a_swin_tiny_patch4_window7_224 --data photos --no-pretrained
    vitrail audit resnet50 --data imagenet/val --images 50000 --workers 8
    """
    import torch

    from vitrail.commands import audit_parts as parts
    from vitrail.commands.audit_answers import Seen, answers, interval
    from vitrail.commands.audit_page import page
    from vitrail.commands.inputs import (
        Folder,
        class_names,
        create,
        find_images,
        require_device,
    )
    from vitrail.measures.outputs import without_tf32

    device = require_device(device)
    without_tf32()
    find_images(data)  # before weights are downloaded
    torch.manual_seed(seed)
    network = create(model, pretrained, checkpoint).to(device)
    own = parts.own_size(network)
    parts.require_sizes(network, size or ())
    output = output or Path("audit-" + re.sub(r"[^\w.]+", "-", model))
    if output.resolve().is_relative_to(data.resolve()):
        raise VitrailError(
            f"--output {output} lies in --data {data}, where its page would be taken for an image: "
            "give --output a folder elsewhere"
        )
    folder = Folder(data, network.num_classes, images, class_names(network, class_map))
    chosen = len(folder)
    folder.leave_out_damaged(workers)
    say(*folder.told())
    sizes = sorted({own, *(size or (STEP * math.ceil(own * times / STEP) for times in LARGER))})
    audited = parts.Audited(
        model=network,
        output=output,
        seed=seed,
        workers=workers,
        unlabelled=folder.unlabelled,
        sizes=tuple(sizes),
    )
    identity = {
        "model": model,
        "weights": parts.weights_digest(network),
        "data": folder.digest(),
        "left_out": len(folder.damaged),
        "labels": "predicted" if folder.unlabelled else "own",
        "sizes": sizes,
        "seed": seed,
        "code": parts.code_digest(),
    }
    batch_size = FIRST_BATCH.get(torch.device(device).type, 16)
    batch_size = parts.list_images(audited, folder, identity, batch_size)
    found: dict[str, parts.Part] = {}
    for name in parts.PARTS:
        found[name], batch_size = parts.measure_part(name, audited, batch_size)
    own_weights = "own" if model.startswith("local-dir:") else "pretrained"
    weights = printable(str(checkpoint or (own_weights if pretrained else "random")))
    shown = {"model": printable(model), "weights_from": weights, "image_size": own}
    origin = identity | shown
    parts.write_table(found, origin, output / "audit.csv")
    title = printable(
        f"{model} ({weights} weights) on {count(len(folder), 'image')} of {data.name}"
    )
    stamp = parts.stamp(found, origin)
    page(found, title, stamp, output / "audit")
    seen = Seen(
        parts.predicted_classes(audited),
        audited.labelled,
        left=folder.available - chosen,
        classes=network.num_classes,
        size=own,
    )
    told = list(answers(found, seen))
    write_atomically(output / "audit.txt", "\n\n".join([title, *told, stamp]) + "\n")
    rows = [
        (
            name,
            row["quantity"],
            row["condition"],
            f"{row['value']:.4g} {row['unit']}".rstrip(),
            interval(row),
        )
        for name, part in found.items()
        for row in part.get("rows", [])
    ]
    table(("part", "quantity", "condition", "value", "95 %"), rows, right=("value",))
    for answer in told:
        say("")
        say(answer)
    say("")
    say(f"Page: {output / 'audit.png'} (and .svg)")
    say(f"Numbers: {output / 'audit.csv'}; answers: {output / 'audit.txt'}")
