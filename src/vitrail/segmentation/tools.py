"""``vitrail mmseg``: MMSegmentation's own tools, which know our models and find ``mmseg::``.

From Python, `import vitrail.segmentation` does the same.
"""

from __future__ import annotations

import argparse
import os
import re
import runpy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import mmseg
import torch
from mmseg.apis import MMSegInferencer
from PIL import Image

from vitrail.errors import VitrailError, first_line, require_known
from vitrail.image_files import image_files, read_image
from vitrail.segmentation.weights import RECORDS

TOOLS = Path(mmseg.__file__).parent / ".mim" / "tools"
MISTAKES = {
    "Expected more than 1 value per channel": "batch norm needs more than one image in a batch; "
    "set train_dataloader.batch_size to 2 or more",
    r"Target \d+ is out of bounds": "a label in the masks is not below the number of classes; set "
    "num_classes of the model's heads to the number of classes of the dataset",
    "'gt_sem_seg'": "the images have no masks to compare with; give data_prefix.seg_map_path and "
    "LoadAnnotations in the pipeline of test_dataloader, or use vitrail mmseg infer",
    "AmpOptimizerWrapper.* only available": "this device has no mixed precision; leave --amp "
    "out, or set optim_wrapper.type to OptimWrapper",
}
"""Remedies for frequent mistakes in a configuration, by a pattern of mmseg's or torch's error."""


def run_tool(tool: str, arguments: Sequence[str]) -> None:
    """Run a tool of mmseg's by its name, such as ``train``, or `infer`.

    Raises:
        VitrailError: there is no such tool, or no such file as it is given, or the tool ends in an
            error that one of the usual `MISTAKES` raises.
    """
    scripts = [str(file.relative_to(TOOLS).with_suffix("")) for file in TOOLS.rglob("[!_]*.py")]
    require_known("mmseg: tool", tool, ["infer", *scripts])
    try:
        if tool == "infer":
            infer(arguments)
            return
        # Some tools read checkpoints by torch.load, which refuses mmengine's records by default.
        with (
            torch.serialization.safe_globals(RECORDS),
            mock.patch.object(sys, "argv", [f"vitrail mmseg {tool}", *arguments]),
        ):
            runpy.run_path(str(TOOLS / f"{tool}.py"), run_name="__main__")
    except FileNotFoundError as error:
        raise VitrailError(
            f"mmseg's {tool} misses a file ({first_line(error)}): correct its path"
        ) from None
    except (AssertionError, IndexError, KeyError, ValueError) as error:
        for pattern, remedy in MISTAKES.items():
            if re.search(pattern, str(error)):
                raise VitrailError(
                    f"mmseg's {tool} fails ({first_line(error)}): {remedy}"
                ) from error
        raise


def infer(arguments: Sequence[str]) -> None:
    """Segment images, and save the classes of their pixels and a picture of them.

    Both are PNG files named after the image, with the folders in which the images differ.
    """
    parser = argparse.ArgumentParser(prog="vitrail mmseg infer", description=infer.__doc__)
    parser.add_argument("config", help="such as config.py in the folder of a run")
    parser.add_argument("weights", help="such as mmseg.pth beside it")
    parser.add_argument("images", nargs="+", help="files of images, and folders of them")
    parser.add_argument("--out", default="predictions", help="gets pred/ and vis/")
    parser.add_argument("--device", help="cpu or cuda; by default cuda where there is one")
    args = parser.parse_args(arguments)
    targets = _targets([file for image in args.images for file in _files(Path(image))], args.out)
    inferencer = MMSegInferencer(args.config, args.weights, device=args.device)
    left_out = []
    for image, (labels, picture) in targets.items():
        try:
            if read_image(image).size == (1, 1):
                raise VitrailError(f"image {image} has a single pixel, which mmseg cannot draw")
        except VitrailError as error:
            left_out.append(str(error))
            continue
        found = inferencer(str(image), return_vis=True)
        for file, pixels in ((labels, found["predictions"]), (picture, found["visualization"])):
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.astype("uint8")).save(file)
    if left_out:
        raise VitrailError(
            f"{len(left_out)} of {len(targets)} images were not segmented; the others are in "
            f"{args.out}: {'; '.join(left_out)}"
        )


def _files(image: Path) -> Iterator[Path]:
    """Yield the images in and below a folder, or a single file."""
    if not image.is_dir():
        yield image
        return
    images = sorted(map(Path, image_files(image)))
    if not images:
        raise VitrailError(f"{image} holds no images: give a folder with some, or their files")
    yield from images


def _targets(images: Sequence[Path], out: str) -> dict[Path, tuple[Path, Path]]:
    """Return for each image the output files of its labels and of its picture.

    Raises:
        VitrailError: one of the files exists, or two images would have the same file.
    """
    places = {image: Path(os.path.abspath(image)) for image in images}
    common = os.path.commonpath([place.parent for place in places.values()])
    owners: dict[Path, Path] = {}
    for image, place in places.items():
        name = place.relative_to(common).with_suffix(".png")
        if (other := owners.setdefault(name, image)) != image and places[other] != place:
            raise VitrailError(
                f"{other} and {image} would both be saved as {name}: segment them one after the "
                "other, each with an --out of its own"
            )
    targets = {
        image: (Path(out) / "pred" / name, Path(out) / "vis" / name)
        for name, image in owners.items()
    }
    for file in (file for files in targets.values() for file in files):
        if file.exists():
            raise VitrailError(f"{file} is there already: give another --out, or remove it first")
    return targets
