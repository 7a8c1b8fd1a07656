"""The stand-in `patchwork`: ADE20K's for the segmenters of the shift paper.

A scene is covered with squares cut from five regions of two photographs, those of the paper's other
stand-ins, and the class of a pixel is its region. Regions have colours in common and a square may
be anywhere, so neither a pixel's colour nor its place tells what it shows: a segmenter has to see
texture. No pixel of a photograph is in both splits. Scenes are files, the same for all seeds.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from replication.data.scenes import WIDTHS, Scene, save
from replication.data.stand_ins.regions import pieces
from replication.data.stand_ins.shift import KINDS
from vitrail.images.opening import Split, stream

if TYPE_CHECKING:
    from replication.plan.datasets import DatasetInfo

COUNTS: dict[Split, int] = {"train": 100, "val": 60}
SIDE = 24
LEAST = 12
THINGS = 6
"""Smaller squares that lie on those that cover a scene."""

CLASSES = ("sky", "pine", "trees", "facade", "petals")
"""Names of `shift.KINDS`."""


def write(info: DatasetInfo, folder: Path, output: Path) -> None:
    """Write all scenes to `output` as ADE20K has them; nothing else is read."""
    randoms = {split: stream("patchwork", split) for split in COUNTS}
    save(output, COUNTS, lambda split, _: compose(split, randoms[split]))


def compose(split: Split, random: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    """Compose the next scene: (H, W, 3) uint8, and its mask (H, W) uint8, 1 + class."""
    scene = Scene(int(random.choice(WIDTHS)))
    height, width = scene.mask.shape
    first_row, first_column = -random.randint(SIDE, size=2)
    rows, columns = range(first_row, height, SIDE), range(first_column, width, SIDE)
    squares = [(top, left, SIDE) for top, left in itertools.product(rows, columns)]
    for side in random.randint(LEAST, SIDE + 1, size=THINGS):
        top, left = random.randint(height - side + 1), random.randint(width - side + 1)
        squares.append((top, left, side))
    labels = random.randint(len(KINDS), size=len(squares))
    cut = pieces(np.array(KINDS)[labels], split, random, SIDE, halved=False)
    for piece, label, (top, left, side) in zip(cut, labels, squares, strict=True):
        scene.paste(piece[:side, :side], np.ones((side, side), bool), top, left, 1 + label)
    return scene.pixels, scene.mask
