"""``vitrail pshap``: P-SHAP of a Vision Transformer on a folder of images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vitrail.commands import count, say
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


@command()
def pshap(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A ViT: timm's name, hf-hub:OWNER/NAME or local-dir:FOLDER."
        ),
    ],
    data: Images,
    pretrained: Pretrained = True,
    checkpoint: Checkpoint = None,
    class_map: ClassMap = None,
    images: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="N",
            show_default="all",
            help="Measure on N images, spread evenly over the folder.",
        ),
    ] = None,
    permutations: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            show_default="4, or 2 for more than 5,000 images",
            help="Permute the positions of each image's patches N times, 1 or an even number.",
        ),
    ] = None,
    half_width: Annotated[
        float | None,
        typer.Option(
            metavar="W",
            show_default="measure all images",
            help="Stop when the 95 % interval is at most W to either side. Images are then taken "
            "in an order drawn from the seed.",
        ),
    ] = None,
    batch_size: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Number of images in one forward pass."),
    ] = 64,
    seed: Seed = 0,
    device: Device = None,
    workers: Workers = 0,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep the images that are done in this file, and go on from it if it exists. It "
            "is deleted at the end.",
        ),
    ] = None,
) -> None:
    """Measure the share of position in a ViT's predictions (P-SHAP).

    Prints the model's P-SHAP, between 0 and 1, with its 95 % interval. The model is one of timm's
    ViT, DeiT, EVA, BEiT, relative-position (vit_relpos...) or NaFlex models, or an octic, flip or
    position_vit model of this library; the positions of others, such as Swin, cannot be permuted.
    Each image takes one forward pass and one more for each permutation of its positions. Where the
    folder has no labels of the model's classes, the class that the model predicts is explained.
    Images that cannot be read are named and left out.

    \b
    vitrail pshap vit_tiny_patch16_224 --data data/imagenette2-320/val
    vitrail pshap vit_small_patch16_rope_224 --data photos --half-width 0.005
    """
    import torch
    from timm.data import create_transform, resolve_model_data_config

    from vitrail.commands.inputs import (
        Folder,
        class_names,
        create,
        find_images,
        require_device,
    )
    from vitrail.commands.p_shap_interval import p_shap_interval
    from vitrail.measures.outputs import without_tf32
    from vitrail.measures.permutable import permutable
    from vitrail.measures.position_shap.measure import position_shap
    from vitrail.measures.position_shap.sweep import require_halves

    if permutations is not None:
        require_halves(permutations)  # before weights are downloaded
    without_tf32()
    device = require_device(device)
    find_images(data)
    torch.manual_seed(seed)
    network = create(model, pretrained, checkpoint)
    permutable(network)  # refuses a model without positions, before all images are read
    folder = Folder(data, network.num_classes, images, class_names(network, class_map))
    folder.leave_out_damaged(workers)
    say(*folder.told())
    folder.transform = create_transform(**resolve_model_data_config(network))
    result = position_shap(
        network.to(device),
        folder,
        permutations=permutations,
        max_half_width=half_width,
        batch_size=batch_size,
        seed=seed,
        workers=workers,
        resume=resume,
        data_digest=folder.digest(),
    )
    correct, shown = int(result.correct.sum()), count(len(result.samples), "image")
    if not correct:
        raise VitrailError(
            f"{model} classifies none of the {shown} in {data} correctly, and P-SHAP is of those: "
            "give it weights or images of its own classes"
        )
    low, high, too_few = p_shap_interval(result)
    interval = too_few or f"95 % interval {low:.4f} to {high:.4f}"
    weights = "" if pretrained or checkpoint else ", random weights"
    say(f"P-SHAP of {model}{weights}: {result.mean:.4f} ({interval})")
    if len(result.samples) < len(folder):
        say(f"Stopped after {shown} of {len(folder)}, as --half-width {half_width:g} asks")
    if folder.unlabelled:
        say(f"Mean over {shown}, each explained by the class predicted")
    else:
        say(f"Mean over the {correct} of {shown} that it classifies correctly")
    passes, speed = result.passes_per_sample, result.samples_per_second
    say(f"{passes:g} forward passes an image, {speed:.3g} images/s on {device}")
