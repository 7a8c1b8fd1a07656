"""``vitrail mmseg``: MMSegmentation's own tools, which know our models and find ``mmseg::``.

From Python, `import vitrail.segmentation` does the same.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import mmseg
from mmseg.apis import MMSegInferencer

from vitrail.errors import VitrailError, first_line, require_known

TOOLS = Path(mmseg.__file__).parent / ".mim" / "tools"


def run_tool(tool: str, arguments: Sequence[str]) -> None:
    """Run a tool of mmseg's by its name, such as ``train``, or `infer`.

    Raises VitrailError where there is no such tool, or no such file as it is given.
    """
    scripts = [str(file.relative_to(TOOLS).with_suffix("")) for file in TOOLS.rglob("[!_]*.py")]
    require_known("mmseg: tool", tool, ["infer", *scripts])
    try:
        if tool == "infer":
            infer(arguments)
            return
        with mock.patch.object(sys, "argv", [f"vitrail mmseg {tool}", *arguments]):
            runpy.run_path(str(TOOLS / f"{tool}.py"), run_name="__main__")
    except FileNotFoundError as error:
        raise VitrailError(
            f"mmseg's {tool} misses a file ({first_line(error)}): correct its path"
        ) from None


def infer(arguments: Sequence[str]) -> None:
    """Segment images, and save the classes of their pixels and a picture of them."""
    parser = argparse.ArgumentParser(prog="vitrail mmseg infer", description=infer.__doc__)
    parser.add_argument("config", help="such as config.py in the folder of a run")
    parser.add_argument("weights", help="such as mmseg.pth beside it")
    parser.add_argument("images", nargs="+", help="files of images")
    parser.add_argument("--out", default="predictions", help="gets pred/ and vis/")
    parser.add_argument("--device", help="cpu or cuda; by default cuda where there is one")
    args = parser.parse_args(arguments)
    inferencer = MMSegInferencer(args.config, args.weights, device=args.device)
    inferencer(args.images, out_dir=args.out)
