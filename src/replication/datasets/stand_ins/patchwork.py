"""The stand-in `patchwork`: ADE20K's for the segmenters of the shift paper."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from replication.datasets.scenes import WIDTHS, ComposedScenes, Scene
from replication.datasets.stand_ins.regions import pieces
from replication.datasets.stand_ins.shift import KINDS
from replication.images.opening import Split, role, stream

COUNTS: dict[Split, int] = {"train": 100, "val": 60}
SIDE = 24
LEAST = 12
THINGS = 6
"""Smaller squares that lie on those that cover a scene."""

CLASSES = ("sky", "pine", "trees", "facade", "petals")
"""Names of `shift.KINDS`."""


def patchwork(folder: Path, split: Split, seed: int = 0) -> ComposedScenes:
    """Scenes of squares, cut from the regions of photographs of the paper's other stand-ins.

    The class of a pixel is its region, of which there are five. Regions have colours in common and
    a square may be anywhere, so neither a pixel's colour nor its place tells what it shows: a
    segmenter has to see texture. No pixel of a photograph is in both splits, and each seed draws
    other scenes.
    """
    random = stream("patchwork", split, seed)
    return ComposedScenes(compose(split, random) for _ in range(COUNTS[role(split)]))


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
